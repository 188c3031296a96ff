//! Requests that two servers could read differently are refused, and their connection is closed.
//!
//! Hyper reads such requests in one safe way, and says nothing of it: with a length and chunks it drops the length. An upstream gets
//! what was read, framed anew. That alone is safe; refusing tells the caller, and keeps what looks like an attack from being served.
//! Answers are read by the same hyper, and go on with one framing or not at all.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Version};
use onlyonce::http::{has_hidden_steps, spelled_path};

use super::hops::Hops;
use crate::config::authority::host_and_port;

/// Why nobody can be sure what a request is; `with_length` if its head named a length.
pub(crate) fn ambiguity<B>(request: &Request<B>, with_length: bool) -> Option<&'static str> {
    let headers = request.headers();
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    match (encodings.next(), encodings.next()) {
        (None, _) => {}
        (Some(_), _) if with_length => {
            return Some("it has both Content-Length and Transfer-Encoding; send one of them");
        }
        (Some(one), None) if one.as_bytes().eq_ignore_ascii_case(b"chunked") => {}
        _ => return Some("its Transfer-Encoding is something else than chunked"),
    }
    if headers.get_all(CONTENT_TYPE).iter().nth(1).is_some() {
        return Some("it has several Content-Type headers");
    }
    if Hops::of(request.method(), headers) == Hops::Unclear {
        return Some("its Max-Forwards is not one number");
    }
    host_ambiguity(request).or_else(|| target_ambiguity(request))
}

/// Leaves an answer with one framing: what hyper has read it by. With chunks it does not look at a length, and passes it on.
///
/// # Errors
/// If others could read the answer differently.
pub(crate) fn settle(headers: &mut HeaderMap) -> Result<(), &'static str> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    match (encodings.next(), encodings.next()) {
        (None, _) => {}
        (Some(one), None) if one.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            headers.remove(CONTENT_LENGTH);
            return Ok(());
        }
        _ => return Err("its Transfer-Encoding is something else than chunked"),
    }
    if !headers.contains_key(CONTENT_LENGTH) {
        return Ok(());
    }
    let length = one_length(headers).ok_or("its Content-Length is not one number")?;
    headers.insert(CONTENT_LENGTH, length.into());
    Ok(())
}

/// Whether a message says that nothing is behind its head.
pub(crate) fn is_empty(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_LENGTH) && one_length(headers) == Some(0)
}

/// The length, which may be said several times, as long as it is the same.
pub(super) fn one_length(headers: &HeaderMap) -> Option<u64> {
    let lines = headers.get_all(CONTENT_LENGTH).iter();
    let mut lengths = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(|length| {
        let digits = length.trim_ascii();
        let is_number = digits.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse::<u64>().ok()
    });
    let first = lengths.next()??;
    lengths.all(|length| length == Some(first)).then_some(first)
}

fn host_ambiguity<B>(request: &Request<B>) -> Option<&'static str> {
    let target = request.uri().authority().map(http::uri::Authority::as_str);
    if let Some(Err(why)) = target.map(host_and_port) {
        return Some(why);
    }
    match (one_host(request.headers()), request.version()) {
        (Err(why), _) => Some(why),
        (Ok(None), Version::HTTP_11) => Some("it has no Host"),
        // In HTTP/1.1 the target wins, says the standard, and some go by Host: both say the same or something is wrong.
        (Ok(Some(host)), _) if target.is_some_and(|target| !target.eq_ignore_ascii_case(host)) => {
            Some("Host says something else than its target")
        }
        _ => None,
    }
}

fn target_ambiguity<B>(request: &Request<B>) -> Option<&'static str> {
    let path = request.uri().path();
    match *request.method() {
        // It has a host for a target, and is refused for what it is.
        Method::CONNECT => None,
        Method::OPTIONS if path == "*" => None,
        _ if !path.starts_with('/') => Some("its target is not a path"),
        _ if has_hidden_steps(&spelled_path(path)) => {
            Some("some services see a step upwards in its path, and others do not")
        }
        _ => None,
    }
}

/// The one Host, which may be empty.
fn one_host(headers: &HeaderMap) -> Result<Option<&str>, &'static str> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => Ok(None),
        (Some(host), None) => match host.to_str() {
            Ok("") => Ok(Some("")),
            Ok(host) => host_and_port(host).map(|_| Some(host)),
            Err(_) => Err("its Host is not text"),
        },
        _ => Err("it has several Host headers"),
    }
}

const LENGTH: &[u8] = b"content-length:";
/// How HTTP/2 begins: not with a request.
const PREFACE: &[u8; LENGTH.len()] = b"PRI * HTTP/2.0\r";

/// Looks through the bytes of a head, as they come, for a line that names a length.
#[derive(Debug, Default)]
pub(crate) struct HeadScan {
    /// How the present line begins.
    start: [u8; LENGTH.len()],
    filled: usize,
    /// A line with something in it was seen: an empty one is now the end.
    begun: bool,
    over: bool,
    pub(crate) found: bool,
    pub(crate) is_http2: bool,
}

impl HeadScan {
    pub(crate) fn take(&mut self, mut bytes: &[u8]) {
        while !self.over && !bytes.is_empty() {
            let end = memchr::memchr(b'\n', bytes);
            let line = &bytes[..end.unwrap_or(bytes.len())];
            let more = line.len().min(LENGTH.len() - self.filled);
            self.start[self.filled..self.filled + more].copy_from_slice(&line[..more]);
            self.filled += more;
            let Some(end) = end else { return };
            self.judge();
            bytes = &bytes[end + 1..];
        }
    }

    fn judge(&mut self) {
        match &self.start[..self.filled] {
            b"" | b"\r" => self.over = self.begun,
            line => {
                self.is_http2 |= !self.begun && line == PREFACE;
                self.begun = true;
                self.found |= line.eq_ignore_ascii_case(LENGTH);
            }
        }
        self.filled = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_seen_however_the_head_is_cut_and_nothing_behind_it_counts() {
        let with = "\r\nPOST / HTTP/1.1\r\nhost: x\r\nContent-Length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
        let without = "POST /content-length: HTTP/1.1\r\nx-content-length: 5\r\ncontent-lengths: 5\r\n\r\ncontent-length: 5\r\n\r\n";
        for size in 1..with.len() {
            for (head, expected) in [(with, true), (without, false)] {
                let mut scan = HeadScan::default();
                head.as_bytes().chunks(size).for_each(|piece| scan.take(piece));
                assert_eq!((scan.found, scan.over), (expected, true), "{size}");
            }
        }
    }

    #[test]
    fn the_beginning_of_http2_is_no_head_however_it_is_cut() {
        let begins = |bytes: &str, size| {
            let mut scan = HeadScan::default();
            bytes.as_bytes().chunks(size).for_each(|piece| scan.take(piece));
            scan.is_http2
        };
        for size in 1..24 {
            assert!(begins("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", size), "{size}");
            assert!(!begins("PRI * HTTP/2.0", size), "it is not there yet");
            assert!(!begins("GET / HTTP/1.1\r\nPRI * HTTP/2.0\r\n", size));
        }
    }

    #[test]
    fn only_one_framing_and_one_host_are_clear() {
        let judge_at = |target: &str, version: Version, headers: &[(&str, &str)], with_length| {
            let request = Request::post(target).version(version);
            let request =
                headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            ambiguity(&request.body(()).unwrap(), with_length).is_some()
        };
        let judge = |version: Version, headers: &[(&str, &str)], with_length| {
            judge_at("http://a/", version, headers, with_length)
        };
        let (one, two) = (Version::HTTP_11, Version::HTTP_2);
        assert!(!judge(one, &[("host", "a")], true));
        assert!(!judge(one, &[("host", "a"), ("transfer-encoding", "Chunked")], false));
        assert!(judge(one, &[("host", "a"), ("transfer-encoding", "chunked")], true));
        assert!(judge(one, &[("host", "a"), ("transfer-encoding", "gzip, chunked")], false));
        assert!(judge(
            one,
            &[("host", "a"), ("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
            false
        ));
        assert!(judge(one, &[], false) && judge(one, &[("host", "a"), ("host", "a")], false));
        assert!(
            !judge(two, &[], false)
                && !judge(two, &[("host", "A")], false)
                && judge(two, &[("host", "b")], false)
        );
        assert!(!judge(Version::HTTP_10, &[], false));
        for wrong in ["a b", "a/b", "u@a", "a,b"] {
            assert!(judge(one, &[("host", wrong)], false), "{wrong}");
        }
        for fine in ["[::1]:80", ""] {
            assert!(!judge_at("/", one, &[("host", fine)], false), "{fine}");
            assert!(judge(one, &[("host", fine)], false), "the target says something else");
        }
    }
}
