//! Which answers are kept, which free the key, and which leave doubt.

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use onlyonce_core::Class;

/// What a 500 of this route means. A framework turns a crash after the charge into 500, so it is not "nothing happened".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum On500 {
    /// Nobody knows.
    #[default]
    Unknown,
    /// The handler rolls everything back: nothing happened.
    Release,
    /// It is an answer like any other.
    Keep,
}

/// Classifies an answer by its status, for handlers that do not decide themselves.
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use onlyonce_core::Class;
/// use onlyonce_http::{On500, classify};
/// let of = |status| classify(status, &HeaderMap::new(), On500::Unknown);
/// assert_eq!(of(StatusCode::CREATED), Class::Keep);
/// assert_eq!(of(StatusCode::CONFLICT), Class::Keep);             // a business refusal is an answer
/// assert_eq!(of(StatusCode::TOO_MANY_REQUESTS), Class::Release);
/// assert_eq!(of(StatusCode::INTERNAL_SERVER_ERROR), Class::Unknown);
/// ```
#[must_use]
pub fn classify(status: StatusCode, headers: &HeaderMap, on_500: On500) -> Class {
    match status.as_u16() {
        401 | 403 | 407 | 408 | 425 | 429 | 501 => Class::Release,
        // Without Retry-After it may be a mesh whose connection died after it had sent the request.
        503 if headers.contains_key(RETRY_AFTER) => Class::Release,
        500 => match on_500 {
            On500::Unknown => Class::Unknown,
            On500::Release => Class::Release,
            On500::Keep => Class::Keep,
        },
        200..=499 => Class::Keep,
        _ => Class::Unknown,
    }
}
