//! An upstream, read from its URL.

use http::uri::{Authority, PathAndQuery, Scheme, Uri};

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

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{:?} is not an upstream: {why}", crate::stores::masked(url));
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| wrong("write a URL such as \"http://127.0.0.1:9000\""))?;
        let (speech, usual) = match scheme {
            "http" => (Speech::Http1, 80),
            "h2c" => (Speech::H2c, 80),
            "https" => (Speech::Tls, 443),
            _ => return Err(wrong("its scheme must be http, https or h2c")),
        };
        let uri: Uri = format!("http://{rest}").parse().map_err(|_| wrong("it can't be read as a URL"))?;
        let authority = uri.authority().cloned().ok_or_else(|| wrong("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("credentials in it would not be sent; leave them out"));
        }
        if uri.query().is_some() {
            return Err(wrong("it must not have a query"));
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let port = authority.port_u16().unwrap_or(usual);
        Ok(Self { speech, host, port, authority, base: uri.path().trim_end_matches('/').to_owned() })
    }

    pub(crate) fn scheme(&self) -> Scheme {
        if self.speech == Speech::Tls { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// The path to ask the upstream for.
    pub(crate) fn path(&self, asked: Option<&PathAndQuery>) -> PathAndQuery {
        let asked = asked.cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        if self.base.is_empty() {
            return asked;
        }
        format!("{}{asked}", self.base).parse().unwrap_or(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_has_a_scheme_a_host_and_perhaps_a_path() {
        let target = Target::parse("http://[::1]:9000/api/").unwrap();
        assert_eq!((target.host.as_str(), target.port, target.base.as_str()), ("::1", 9000, "/api"));
        assert_eq!(target.path(Some(&PathAndQuery::from_static("/a?b=1"))), "/api/a?b=1");
        assert_eq!(Target::parse("https://h").unwrap().port, 443);
        for wrong in ["", "h:1", "ftp://h", "http://", "http://u:p@h", "http://h/?q"] {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
        assert!(!Target::parse("http://u:hunter2@h").unwrap_err().contains("hunter2"));
    }
}
