//! How far a request may be forwarded (`Max-Forwards`, RFC 9110 7.6.2), which only OPTIONS and TRACE say.

use http::header::{HeaderValue, MAX_FORWARDS};
use http::{HeaderMap, Method};

/// How many hops are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hops {
    AnyNumber,
    Left(u64),
    /// It says so twice, or not by a number.
    Unclear,
}

impl Hops {
    pub(crate) fn of(method: &Method, headers: &HeaderMap) -> Self {
        if *method != Method::OPTIONS && *method != Method::TRACE {
            return Self::AnyNumber;
        }
        let mut values = headers.get_all(MAX_FORWARDS).iter().map(HeaderValue::as_bytes);
        match (values.next(), values.next()) {
            (None, _) => Self::AnyNumber,
            (Some(digits @ [_, ..]), None) if digits.iter().all(u8::is_ascii_digit) => {
                let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
                Self::Left(number.unwrap_or(u64::MAX))
            }
            _ => Self::Unclear,
        }
    }
}

/// Notes that a request is forwarded once more.
pub(crate) fn count_down(method: &Method, headers: &mut HeaderMap) {
    if let Hops::Left(left) = Hops::of(method, headers) {
        headers.insert(MAX_FORWARDS, HeaderValue::from(left.saturating_sub(1)));
    }
}
