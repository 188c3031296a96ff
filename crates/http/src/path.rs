//! The path of a call, in one spelling of the many that mean the same.

use std::borrow::Cow;

use http::request::Parts;

/// The path as the client sent it, in its one spelling. Below a nested axum router the URI is cut, and two routers would share
/// records.
pub(crate) fn of(parts: &Parts) -> Cow<'_, str> {
    #[cfg(feature = "axum")]
    if let Some(original) = parts.extensions.get::<axum::extract::OriginalUri>() {
        return spelled(original.path());
    }
    spelled(parts.uri.path())
}

/// A path in the spelling that stands for all equivalent ones (RFC 3986, 6.2.2): `/%70ay`, `/./pay` and `/x/../pay` are `/pay`.
///
/// Services decode a path before they look at it. A caller that spelled it otherwise would get past the rules of its route,
/// or past the record of its first call.
#[must_use]
pub fn spelled(path: &str) -> Cow<'_, str> {
    if !path.contains('%') && !path.contains("/.") {
        return Cow::Borrowed(path);
    }
    Cow::Owned(without_dots(&decoded(path)))
}

/// Escapes that are not needed are undone, and the others are written in capitals.
fn decoded(path: &str) -> String {
    let mut spelled = String::with_capacity(path.len());
    let mut pieces = path.split('%');
    spelled.extend(pieces.next());
    for piece in pieces {
        let escaped = piece.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped.map(char::from) {
            Some(letter) if letter.is_ascii_alphanumeric() || "-._~".contains(letter) => {
                spelled.push(letter);
                spelled.push_str(&piece[2..]);
            }
            Some(_) => {
                spelled.push('%');
                spelled.push_str(&piece[..2].to_ascii_uppercase());
                spelled.push_str(&piece[2..]);
            }
            // Not an escape: as it came.
            None => {
                spelled.push('%');
                spelled.push_str(piece);
            }
        }
    }
    spelled
}

/// Steps to the same place and to the place above are taken.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_paths_have_one_spelling() {
        for (path, expected) in [
            ("/pay", "/pay"),
            ("/%70ay", "/pay"),
            ("/p%61%79", "/pay"),
            ("/./pay", "/pay"),
            ("/x/../pay", "/pay"),
            ("/x/%2e%2E/pay", "/pay"),
            ("/../../pay", "/pay"),
            ("/pay/.", "/pay/"),
            ("/pay/x/..", "/pay/"),
            ("/a%2fb", "/a%2Fb"),
            ("/%c3%a4", "/%C3%A4"),
            ("/", "/"),
        ] {
            assert_eq!(spelled(path), expected, "{path}");
        }
    }

    #[test]
    fn different_paths_stay_different() {
        for path in [
            "/pay/",
            "//pay",
            "/PAY",
            "/pay;a=1",
            "/a%2Fb",
            "/100%",
            "/%zz",
            "/%4",
            "/.well-known",
            "/..x",
            "/%+1",
            "*",
        ] {
            assert_eq!(spelled(path), path, "{path}");
        }
    }
}
