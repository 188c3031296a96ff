//! The path of a call, in one spelling of the many that mean the same.

use std::borrow::Cow;

use http::request::Parts;
use percent_encoding::percent_decode_str;

/// The path as the client sent it, in its one spelling. Below a nested axum router the URI is cut, and two routers would share
/// records.
pub(crate) fn of(parts: &Parts) -> Cow<'_, str> {
    #[cfg(feature = "axum")]
    if let Some(original) = parts.extensions.get::<axum::extract::OriginalUri>() {
        return spelled(original.path());
    }
    spelled(parts.uri.path())
}

/// A path in the spelling that stands for all that every service reads alike: `/%70ay`, `/./pay` and `/x/../pay` are `/pay`
/// (RFC 3986, 6.2.2), a raw `/café` is `/caf%C3%A9`, and `/a%40b` is `/a@b`.
///
/// Services decode a path before they look at it. A caller that spelled it otherwise would get past the rules of its route,
/// or past the record of its first call.
#[must_use]
pub fn spelled(path: &str) -> Cow<'_, str> {
    escaped(resolved(path), is_literal)
}

/// The same for a pattern, whose braces are not part of any path.
#[must_use]
pub fn spelled_pattern(pattern: &str) -> Cow<'_, str> {
    escaped(resolved(pattern), |byte| is_literal(byte) || b"{}".contains(&byte))
}

/// What has no other meaning when it is escaped.
fn is_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@".contains(&byte)
}

/// Escapes that are not needed are undone, those that are missing are made, and all are written in capitals. A slash and a semicolon
/// stay as they came: some services cut a path there, but not where they are escaped.
fn escaped(path: Cow<'_, str>, is_literal: fn(u8) -> bool) -> Cow<'_, str> {
    if path.bytes().all(|byte| is_literal(byte) || byte == b'/' || byte == b';') {
        return path;
    }
    let mut spelled = String::with_capacity(path.len() + 8);
    let mut rest = path.as_bytes();
    while let [byte, behind @ ..] = rest {
        let undone = if *byte == b'%' { escape(behind) } else { None };
        rest = if undone.is_some() { &behind[2..] } else { behind };
        match (undone, *byte) {
            (Some(byte), _) if is_literal(byte) => spelled.push(char::from(byte)),
            // Not an escape: as it came.
            (None, byte @ (b'/' | b';' | b'%')) => spelled.push(char::from(byte)),
            (None, byte) if is_literal(byte) => spelled.push(char::from(byte)),
            (Some(byte), _) | (None, byte) => spelled.push_str(&format!("%{byte:02X}")),
        }
    }
    Cow::Owned(spelled)
}

/// The byte that two hexadecimal digits at the beginning stand for.
fn escape(behind: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*behind.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// A path whose steps to the same place and to the place above are taken (RFC 3986, 5.2.4); all else is as it came.
#[must_use]
pub fn resolved(path: &str) -> Cow<'_, str> {
    if !path.starts_with('/') || !path.split('/').any(|segment| step(segment).is_some()) {
        return Cow::Borrowed(path);
    }
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        match step(segment) {
            None => kept.push(segment),
            Some(step) => {
                if step == Step::Up {
                    kept.pop();
                }
                if segments.peek().is_none() {
                    kept.push("");
                }
            }
        }
    }
    Cow::Owned(format!("/{}", kept.join("/")))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Here,
    Up,
}

fn step(segment: &str) -> Option<Step> {
    match segment.as_bytes() {
        [b'.'] => Some(Step::Here),
        [b'.', b'.'] => Some(Step::Up),
        [b'.' | b'%', ..] if segment.len() <= 6 => {
            match segment.replace("%2e", ".").replace("%2E", ".").as_str() {
                "." => Some(Step::Here),
                ".." => Some(Step::Up),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether a spelled path holds a step upwards, or to the same place, that only some services see: behind an escaped slash or a
/// backslash, or with parameters (`..;a=1`).
#[must_use]
pub fn has_hidden_steps(spelled: &str) -> bool {
    spelled.contains('.') && lax_segments(spelled).iter().any(|segment| step(segment).is_some())
}

/// The segments of a spelled path as the laxest service might cut it.
fn lax_segments(spelled: &str) -> Vec<String> {
    let cut = |segment: &str| segment.split(';').next().unwrap_or_default().to_owned();
    slashed(spelled).split('/').map(cut).collect()
}

/// A path in which all that some services take for a slash is one, and all at which some end a segment is a semicolon.
fn slashed(spelled: &str) -> String {
    spelled.replace("%2F", "/").replace("%5C", "/").replace("%3B", ";").replace("%00", ";")
}

/// A pattern as the laxest service might read its paths. There are services that do without the parameters of segments, empty segments, a
/// slash at the end, the ending of a file (`/pay.json`), the case of letters, control characters and bytes that are no text, and that
/// take an escaped slash for one.
///
/// Good to find the rules of a call by, and nothing else: to most services such paths are different.
pub(crate) fn laxest(pattern: &str) -> Cow<'_, str> {
    if is_plain(pattern) {
        return Cow::Borrowed(pattern);
    }
    Cow::Owned(read(&slashed(pattern), Parameters::Cut, Empty::Dropped))
}

/// A spelled path in all readings of lax services, each as [`laxest`] writes a pattern: with and without the parameters of segments, with
/// and without empty ones, and without the host that some take `//host/pay` to begin with.
pub(crate) fn readings(spelled: &str) -> Vec<Cow<'_, str>> {
    if is_plain(spelled) {
        return vec![Cow::Borrowed(spelled)];
    }
    let slashed = slashed(spelled);
    let mut readings: Vec<Cow<'_, str>> = Vec::new();
    for path in [Some(&*slashed), behind_host(&slashed)].into_iter().flatten() {
        for parameters in [Parameters::Cut, Parameters::Kept] {
            for empty in [Empty::Dropped, Empty::Kept] {
                let reading = Cow::Owned(read(path, parameters, empty));
                if !readings.contains(&reading) {
                    readings.push(reading);
                }
            }
        }
    }
    readings
}

#[derive(Clone, Copy)]
enum Parameters {
    Cut,
    Kept,
}

#[derive(Clone, Copy)]
enum Empty {
    Dropped,
    /// Read as a segment like any other.
    Kept,
}

/// Whether all services read it alike.
fn is_plain(path: &str) -> bool {
    let is_plain = |byte: u8| !byte.is_ascii_uppercase() && !b";%.".contains(&byte);
    let has_empty = path.contains("//") || (path.len() > 1 && path.ends_with('/'));
    path.bytes().all(is_plain) && !has_empty
}

/// What stands behind the host, to services that resolve a target that begins with two slashes as a URL.
fn behind_host(slashed: &str) -> Option<&str> {
    let behind = slashed.strip_prefix("//")?.trim_start_matches('/');
    behind.find('/').map(|at| &behind[at..])
}

fn read(slashed: &str, parameters: Parameters, empty: Empty) -> String {
    let is_pattern = slashed.contains('{');
    let cut = |segment: &str| match parameters {
        Parameters::Cut => lower(segment.split(';').next().unwrap_or_default(), is_pattern),
        Parameters::Kept => lower(segment, is_pattern),
    };
    let mut segments: Vec<String> = slashed.trim_end_matches('/').split('/').skip(1).map(cut).collect();
    match empty {
        Empty::Dropped => segments.retain(|segment| !segment.is_empty()),
        Empty::Kept => segments.iter_mut().filter(|segment| segment.is_empty()).for_each(|it| it.push('-')),
    }
    if let Some(last) = segments.last_mut() {
        let end = last.find('.').filter(|end| *end > 0).unwrap_or(last.len());
        last.truncate(last[..end].trim_end().len());
    }
    // No path that was spelled has braces.
    let is_literal = if is_pattern { |byte| is_literal(byte) || b"{}".contains(&byte) } else { is_literal };
    let escaped = segments.into_iter().map(|segment| escaped(Cow::Owned(segment), is_literal).into_owned());
    format!("/{}", escaped.collect::<Vec<_>>().join("/"))
}

/// A segment in small letters, unescaped, without what is no text; but for parameters of patterns, whose names are ours.
fn lower(segment: &str, is_pattern: bool) -> String {
    let mut lowered = String::with_capacity(segment.len());
    for part in segment.split_inclusive(['{', '}']) {
        if is_pattern && part.ends_with('}') && lowered.ends_with('{') {
            lowered.push_str(part);
        } else {
            let bytes: Vec<u8> = percent_decode_str(part).filter(|byte| !byte.is_ascii_control()).collect();
            lowered.push_str(&String::from_utf8_lossy(&bytes).replace('\u{fffd}', "").to_lowercase());
        }
    }
    lowered
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
            ("/x/.%2E/%2e/pay", "/pay"),
            ("/../../pay", "/pay"),
            ("/pay/.", "/pay/"),
            ("/pay/x/..", "/pay/"),
            ("/a%2fb", "/a%2Fb"),
            ("/%c3%a4", "/%C3%A4"),
            ("/\u{e4}", "/%C3%A4"),
            ("/a|b\"{c}\\^[d]", "/a%7Cb%22%7Bc%7D%5C%5E%5Bd%5D"),
            ("/a%7cb", "/a%7Cb"),
            ("/a%40b%3A%21%24%26%27%28%29%2A%2B%2C%3D", "/a@b:!$&'()*+,="),
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
            "/pay%3Ba=1",
            "/a%2Fb",
            "/a%5Cb",
            "/a%25b",
            "/a%3Fb",
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

    #[test]
    fn a_pattern_keeps_its_braces() {
        assert_eq!(spelled_pattern("/caf\u{e9}/{id}/{*rest}"), "/caf%C3%A9/{id}/{*rest}");
    }

    #[test]
    fn only_steps_are_taken_and_all_else_is_as_it_came() {
        for (path, expected) in [
            ("/../pay", "/pay"),
            ("/x/%2e%2e/%70ay", "/%70ay"),
            ("/a/..", "/"),
            ("/a/b/./..", "/a/"),
            ("/a//../b", "/a/b"),
            ("/...", "/..."),
            ("/..;/a", "/..;/a"),
            ("*", "*"),
            ("", ""),
        ] {
            assert_eq!(resolved(path), expected, "{path}");
        }
    }

    #[test]
    fn steps_that_only_some_services_see_are_noticed() {
        for path in ["/x/..;/pay", "/..%2Fpay", "/..%5Cpay", "/.%3Bx/pay", "/x%2F..", "/..;a=1"] {
            assert!(has_hidden_steps(&spelled(path)), "{path}");
        }
        for path in ["/x/../pay", "/a..b", "/...", "/.well-known", "/a;..", "/a%2Fb.c", "/"] {
            assert!(!has_hidden_steps(&spelled(path)), "{path}");
        }
    }

    #[test]
    fn the_laxest_reading_drops_what_some_services_drop() {
        for path in [
            "/pay/",
            "//pay",
            "/PAY",
            "/pay;v=1",
            "/pay%2F",
            "/;x/pay",
            "/pay%3Bx",
            "/%2Fpay",
            "/pay%5C",
            "/pay.",
            "/pay.json",
            "/pay%00.x",
            "/pay%20",
            "/pay%0A",
            "/p%80ay",
            "/pay%1F",
            "//x/pay",
            "//x:80/pay",
            "///x/pay",
            "/%5Cx/pay",
            "//x@y/PAY;z",
        ] {
            assert!(readings(path).contains(&"/pay".into()), "{path}: {:?}", readings(path));
        }
        for path in ["/orders/;1/REFUND", "/ordeRs/%3B1/refund", "/orders//;1/refund", "/orders//refund"] {
            let is_refund = |reading: &Cow<'_, str>| {
                let segments: Vec<&str> = reading.split('/').collect();
                matches!(segments[..], ["", "orders", id, "refund"] if !id.is_empty())
            };
            assert!(readings(path).iter().any(is_refund), "{path}: {:?}", readings(path));
        }
        for (path, expected) in [
            ("/Orders/{orderId}/", "/orders/{orderId}"),
            ("/V1.0/Img-{Id}", "/v1.0/img-{Id}"),
            ("/Img/{Id}.Png", "/img/{Id}"),
            ("/CAF%C3%A9", "/caf%C3%A9"),
            ("/CAF%C3%89", "/caf%C3%A9"),
            ("/pay", "/pay"),
            ("/", "/"),
        ] {
            assert_eq!(laxest(path), expected, "{path}");
        }
    }
}
