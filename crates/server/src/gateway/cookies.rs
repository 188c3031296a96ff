//! The one cookie of a name, as long as every service finds the same one.

use http::HeaderMap;
use http::header::{COOKIE, HeaderValue};
use percent_encoding::percent_decode;

use super::scope::Word;

/// Looks for a cookie in all lines, byte by byte: a value beside it may be anything.
pub(crate) fn find(headers: &HeaderMap, name: &str) -> Word {
    let lines = || headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let alike = ENDS.map(|ends| {
        let pieces = lines().flat_map(|line| line.split(|byte| ends.contains(byte)));
        pieces.filter(|piece| is_alike(piece, name)).count()
    });
    let alike = alike.into_iter().max().unwrap_or_default();
    let mut exact = lines().flat_map(|line| line.split(|byte| *byte == b';')).filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        (pair[..equals].trim_ascii() == name.as_bytes()).then(|| pair[equals + 1..].trim_ascii())
    });
    match (alike, exact.next()) {
        (0, None) => Word::Absent(format!("the cookie {name} is missing")),
        (1, Some(value)) => Word::of(value, format_args!("the cookie {name}")),
        (1, None) => Word::Unclear(format!("the cookie {name} is not written as {name}=…")),
        _ => Word::Unclear(format!("the cookie {name} is there more than once, at least to some services")),
    }
}

/// Where some service ends a cookie: most at a semicolon alone, old ones at a comma, Python's at white space, and not all of them know
/// quotes.
const ENDS: [&[u8]; 3] = [b";", b";,", b";, \t"];

/// Whether a piece is this cookie to some service: there are those that decode names, drop quotes, or do not know capitals.
fn is_alike(piece: &[u8], name: &str) -> bool {
    let found = piece.split(|byte| *byte == b'=').next().unwrap_or_default();
    let found: Vec<u8> = percent_decode(found).filter(|byte| *byte != b'"').collect();
    let found = found.trim_ascii();
    // PHP reads `a[0]` as a part of `a`, and `a[b` as `a_b`.
    let bracket = found.iter().position(|byte| *byte == b'[').filter(|at| *at > 0).unwrap_or(found.len());
    [found, &found[..bracket]].iter().any(|found| folded(found) == folded(name.as_bytes()))
}

/// What is the same name to some service: PHP writes an underscore for what can't be in the name of a variable.
fn folded(name: &[u8]) -> Vec<u8> {
    let fold = |byte: &u8| {
        if byte.is_ascii_alphanumeric() || !byte.is_ascii() { byte.to_ascii_lowercase() } else { b'_' }
    };
    name.iter().map(fold).collect()
}
