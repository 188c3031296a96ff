//! An upstream, read from its URL.

use std::net::Ipv4Addr;

use http::uri::{Authority, PathAndQuery, Scheme};
use onlyonce::http::resolved_path;

use super::authority::host_and_port;

/// How an upstream is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Speech {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 without TLS, by prior knowledge.
    H2c,
    /// TLS, and what ALPN chooses.
    Tls,
}

/// Where an upstream is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) speech: Speech,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) authority: Authority,
    /// What every path begins with; empty for nothing.
    pub(crate) base: String,
}

/// A path can't be sent on with the base before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong;

/// The longest base: there must be room for paths behind it.
const LONGEST_BASE: usize = 4096;

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            let shown = crate::masked::address(url);
            format!("{shown:?} is not an upstream: {why}; write a URL such as \"http://127.0.0.1:9000\"")
        };
        if url.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
            return Err(wrong("it has white space in it"));
        }
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let (speech, usual) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (Speech::Http1, 80),
            "h2c" => (Speech::H2c, 80),
            "https" => (Speech::Tls, 443),
            _ => return Err(wrong("its scheme must be http, https or h2c")),
        };
        if rest.contains('#') {
            return Err(wrong("it must not have a fragment"));
        }
        if rest.contains('?') {
            return Err(wrong("it must not have a query"));
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(wrong("credentials in it would not be sent, leave them out"));
        }
        let (host, port) = host_and_port(authority).map_err(wrong)?;
        let is_number = |label: &str| !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit());
        if host.rsplit('.').next().is_some_and(is_number) && host.parse::<Ipv4Addr>().is_err() {
            return Err(wrong("its host is neither a name nor an IPv4 address"));
        }
        if authority.ends_with(':') || port == Some(0) {
            return Err(wrong("its port must be a number from 1 to 65535, or left out with its colon"));
        }
        let base = base(path).map_err(wrong)?;
        let (host, port) = (host.to_owned(), port.unwrap_or(usual));
        let authority = authority.parse().map_err(|_| wrong("its host can't be read"))?;
        Ok(Self { speech, host, port, authority, base })
    }

    pub(crate) fn scheme(&self) -> Scheme {
        if self.speech == Speech::Tls { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// The path to ask the upstream for. Steps upwards are taken before: behind the base they would lead out of it, and the service
    /// is to see the path that the call was identified by.
    pub(crate) fn path(&self, asked: Option<&PathAndQuery>) -> Result<PathAndQuery, TooLong> {
        let Some(asked) = asked else { return self.path(Some(&PathAndQuery::from_static("/"))) };
        let path = resolved_path(asked.path());
        // OPTIONS for the service as a whole.
        if (self.base.is_empty() && path == asked.path()) || path == "*" {
            return Ok(asked.clone());
        }
        let (mark, query) = asked.query().map_or(("", ""), |query| ("?", query));
        format!("{}{path}{mark}{query}", self.base).parse().map_err(|_| TooLong)
    }
}

/// The path before all paths, without the slash at its end.
fn base(path: &str) -> Result<String, &'static str> {
    let base = path.trim_end_matches('/');
    if base.is_empty() {
        return Ok(String::new());
    }
    if base.len() > LONGEST_BASE {
        return Err("its path is longer than 4096 bytes");
    }
    if resolved_path(base) != base {
        return Err("its path must not have the segments . and ..");
    }
    base.parse::<PathAndQuery>().map(|base| base.to_string()).map_err(|_| "its path can't be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_has_a_scheme_a_host_and_perhaps_a_path() {
        let target = Target::parse("http://[::1]:9000/api/").unwrap();
        assert_eq!((target.host.as_str(), target.port, target.base.as_str()), ("::1", 9000, "/api"));
        assert_eq!(target.path(Some(&PathAndQuery::from_static("/a?b=1"))).unwrap(), "/api/a?b=1");
        assert_eq!(Target::parse("https://h").unwrap().port, 443);
        assert_eq!(Target::parse("HTTP://h:80").unwrap().speech, Speech::Http1);
        assert_eq!(Target::parse("http://web_1.svc./").unwrap().base, "");
        assert!(!Target::parse("http://u:hunter2@h").unwrap_err().contains("hunter2"));
    }

    #[test]
    fn a_malformed_upstream_is_refused_with_what_to_write() {
        for wrong in [
            "",
            "h:1",
            "ftp://h",
            "http://",
            "http:///x",
            "http://u:p@h",
            "http://h/?q",
            "http://h?",
            "http://h#x",
            "http://h/a#x",
            "http://127.0.0.1:99999",
            "http://127.0.0.1:abc",
            "http://h:",
            "http://h:0",
            "http://h:-1",
            "http://h:80:80",
            "http://h:+80",
            "http://h:8 0",
            "http:// h",
            "http://h ",
            " http://h",
            "http://:80",
            "http://[::1",
            "http://::1",
            "http://[::1]9",
            "http://[x]:80",
            "http://a..b",
            "http://256.1.1.1",
            "http://1.2.3.4.5",
            "http://a,b",
            "http://a\\b",
            "http://h/../x",
            "http://h/%2e%2e/x",
            "http://h/a b",
            "http:/h",
            "http:h",
            "//h",
            "http://h/\u{7f}",
        ] {
            let told = Target::parse(wrong).unwrap_err();
            assert!(told.contains("http://127.0.0.1:9000"), "{wrong}: {told}");
        }
        assert!(Target::parse(&format!("http://h/{}", "x".repeat(5000))).is_err());
    }

    #[test]
    fn a_path_never_leaves_the_base_and_is_never_sent_without_it() {
        let target = Target::parse("http://h/base").unwrap();
        let sent = |asked: &str| target.path(Some(&asked.parse().unwrap())).map(|path| path.to_string());
        assert_eq!(sent("/../pay"), Ok("/base/pay".into()));
        assert_eq!(sent("/a/%2e%2e/%2E%2e/pay?x=/../y"), Ok("/base/pay?x=/../y".into()));
        assert_eq!(sent("*"), Ok("*".into()));
        assert_eq!(sent(&format!("/{}", "x".repeat(65_533 - 5))).map(|path| path.len()), Ok(65_534));
        assert_eq!(sent(&format!("/{}", "x".repeat(65_534 - 5))), Err(TooLong));
        let plain = Target::parse("http://h").unwrap();
        assert_eq!(plain.path(Some(&"/x/../pay?".parse().unwrap())).unwrap(), "/pay?");
        assert_eq!(plain.path(None).unwrap(), "/");
    }
}
