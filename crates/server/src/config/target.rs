//! An upstream, read from its URL; and which requests go to which.

use http::Method;
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

/// Requests that go to another upstream than the usual one.
#[derive(Debug, Clone)]
pub(crate) struct Forward {
    /// A name, or `*.name` for all below it.
    pub(crate) host: Option<String>,
    /// Whole segments at the beginning of the path.
    pub(crate) path: Option<String>,
    pub(crate) methods: Vec<Method>,
    pub(crate) target: Target,
}

impl Forward {
    pub(crate) fn matches(&self, method: &Method, host: Option<&str>, path: &str) -> bool {
        let is_host =
            self.host.as_deref().is_none_or(|wanted| host.is_some_and(|host| is_host(wanted, host)));
        let is_path = self.path.as_deref().is_none_or(|prefix| {
            path.strip_prefix(prefix.trim_end_matches('/'))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        is_host && is_path && (self.methods.is_empty() || self.methods.contains(method))
    }
}

fn is_host(wanted: &str, host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    };
    let name = name.to_ascii_lowercase();
    match wanted.strip_prefix("*.") {
        Some(domain) => name.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        None => name == wanted,
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

    #[test]
    fn a_forward_matches_host_whole_segments_and_method() {
        let target = Target::parse("http://h").unwrap();
        let forward = Forward {
            host: Some("*.example.com".into()),
            path: Some("/v2".into()),
            methods: vec![Method::POST],
            target,
        };
        let is = |method, host, path| forward.matches(&method, host, path);
        assert!(is(Method::POST, Some("api.EXAMPLE.com:80"), "/v2/pay"));
        assert!(is(Method::POST, Some("api.example.com"), "/v2"));
        assert!(!is(Method::GET, Some("api.example.com"), "/v2"));
        assert!(!is(Method::POST, Some("example.com"), "/v2"));
        assert!(!is(Method::POST, Some("badexample.com"), "/v2"));
        assert!(!is(Method::POST, Some("api.example.com"), "/v22"));
        assert!(!is(Method::POST, None, "/v2"));
    }
}
