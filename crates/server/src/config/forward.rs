//! Which requests go to another upstream than the usual one.

use std::borrow::Cow;

use http::Method;

use super::file::Entry;
use super::source::{Given, Problems, Source};
use super::{rules, target::Target};
use crate::gateway::OWN;

/// Requests that go to another upstream than the usual one.
#[derive(Debug, Clone)]
pub(crate) struct Forward {
    /// A name, or `*.name` for all below it.
    pub(crate) host: Option<String>,
    /// Whole segments at the beginning of the path.
    pub(crate) path: Option<String>,
    pub(crate) methods: Vec<Method>,
    pub(crate) target: Target,
    pub(crate) source: Source,
}

impl Forward {
    /// Reads an entry; `None` only together with a problem.
    pub(super) fn read(entry: &Entry, problems: &mut Problems) -> Option<Self> {
        let text = |name: &str| entry.values.get(name).map(|given| (given.text(), given.source.clone()));
        let Some((upstream, at)) = text("upstream") else {
            problems.add(&entry.source, "this [[forward]] names no upstream: add upstream = \"http://…\"");
            return None;
        };
        let before = problems.0.len();
        let target = problems.take(&at, Target::parse(&upstream));
        let host = text("host").and_then(|(host, at)| problems.take(&at, host_of(&host)));
        let path = text("path").and_then(|(path, at)| problems.take(&at, path_of(&path)));
        let methods = entry.values.get("method").map(|given| methods(given, problems)).unwrap_or_default();
        let whole = problems.0.len() == before;
        target.filter(|_| whole).map(|target| Self {
            host,
            path,
            methods,
            target,
            source: entry.source.clone(),
        })
    }

    /// The host is [`name_of`] the one that the request is for, the path in its one spelling, which identity has too.
    pub(crate) fn matches(&self, method: &Method, host: Option<&str>, path: &str) -> bool {
        self.host.as_deref().is_none_or(|wanted| host.is_some_and(|host| covers_host(wanted, host)))
            && self.path.as_deref().is_none_or(|prefix| covers_path(prefix, path))
            && (self.methods.is_empty() || self.methods.contains(method))
    }

    /// Whether it takes every request that `other` could take.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let host = match (&self.host, &other.host) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(wanted), Some(host)) => covers_host(wanted, host),
        };
        let path = match (self.path.as_deref(), other.path.as_deref()) {
            (None | Some("/"), _) => true,
            (Some(_), None) => false,
            (Some(prefix), Some(path)) => covers_path(prefix, path),
        };
        let methods = self.methods.is_empty()
            || (!other.methods.is_empty()
                && other.methods.iter().all(|method| self.methods.contains(method)));
        host && path && methods
    }
}

/// The name of a host as it is compared: `Shop.Example:8080` and `shop.example.` are `shop.example`. No upstream is chosen by a port,
/// so none tells two calls apart.
pub(crate) fn name_of(host: &str) -> Cow<'_, str> {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

fn covers_host(wanted: &str, host: &str) -> bool {
    match wanted.strip_prefix("*.") {
        Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        None => host == wanted,
    }
}

fn covers_path(prefix: &str, path: &str) -> bool {
    let rest = path.strip_prefix(prefix.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A host as it is compared, or why no request could be for it.
fn host_of(text: &str) -> Result<String, String> {
    let wrong = |why: &str| {
        format!(
            "host: {text:?} {why}; write a name such as \"shop.example\", or \"*.shop.example\" for all below it"
        )
    };
    let host = text.trim().to_ascii_lowercase();
    if !host.is_ascii() {
        return Err(wrong("is not in the form that is sent: international names begin with \"xn--\" there"));
    }
    let address = host.trim_start_matches('[').trim_end_matches(']');
    if address.parse::<std::net::Ipv6Addr>().is_ok() {
        return Ok(address.to_owned());
    }
    if host.contains(':') {
        return Err(wrong("has a port, which no upstream is chosen by"));
    }
    let host = host.strip_suffix('.').unwrap_or(&host);
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    if name.split('.').all(is_label) { Ok(host.to_owned()) } else { Err(wrong("is not the name of a host")) }
}

fn path_of(text: &str) -> Result<String, String> {
    let path = rules::path_as_sent(text).map_err(|why| format!("path: {why}"))?;
    if path.starts_with(OWN) {
        return Err(format!("path: {OWN}… is the gateway's own, and never forwarded"));
    }
    Ok(path)
}

fn methods(given: &Given, problems: &mut Problems) -> Vec<Method> {
    let names: Vec<&String> = given.parts.iter().filter(|name| !name.trim().is_empty()).collect();
    if names.is_empty() {
        problems.add(&given.source, "method: the list is empty; leave it out for all methods");
    }
    let read = names.into_iter().map(|name| rules::any_method(name).map_err(|why| format!("method: {why}")));
    read.filter_map(|method| problems.take(&given.source, method)).collect()
}

/// Forwards that never get a request, because one before them takes it.
pub(super) fn tell_hidden(forwards: &[Forward], problems: &mut Problems) {
    for (n, forward) in forwards.iter().enumerate() {
        if let Some(before) = forwards[..n].iter().find(|before| before.covers(forward)) {
            problems.add(
                &forward.source,
                format!(
                    "this [[forward]] never gets a request: the one of {} takes all of them; put this one before it, or take it out",
                    before.source
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forward(host: Option<&str>, path: Option<&str>, methods: &[Method]) -> Forward {
        Forward {
            host: host.map(Into::into),
            path: path.map(Into::into),
            methods: methods.to_vec(),
            target: Target::parse("http://h").unwrap(),
            source: Source::Nowhere,
        }
    }

    #[test]
    fn a_forward_matches_host_whole_segments_and_method() {
        let forward = forward(Some("*.example.com"), Some("/v2"), &[Method::POST]);
        let is =
            |method, host: Option<&str>, path| forward.matches(&method, host.map(name_of).as_deref(), path);
        assert!(is(Method::POST, Some("api.EXAMPLE.com:80"), "/v2/pay"));
        assert!(is(Method::POST, Some("api.example.com."), "/v2"));
        assert!(!is(Method::GET, Some("api.example.com"), "/v2"));
        assert!(!is(Method::POST, Some("example.com"), "/v2"));
        assert!(!is(Method::POST, Some("badexample.com"), "/v2"));
        assert!(!is(Method::POST, Some("api.example.com"), "/v22"));
        assert!(!is(Method::POST, None, "/v2"));
    }

    #[test]
    fn a_host_has_one_spelling() {
        for host in ["a.example", "A.Example", "a.example:80", "a.example.", "A.example.:8443"] {
            assert_eq!(name_of(host), "a.example", "{host}");
        }
        assert_eq!(name_of("[::1]:80"), "::1");
        assert_eq!(host_of("[::1]"), Ok("::1".into()));
        assert_eq!(host_of("*.Shop.example."), Ok("*.shop.example".into()));
        for wrong in ["", " ", "a b", "*.*.x", "*", "*.", "a..b", "a.example:80", "ä.example", "http://a"] {
            assert!(host_of(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_behind_a_wider_one_is_hidden() {
        let all = forward(None, None, &[]);
        let below = forward(Some("*.x"), None, &[]);
        let one = forward(Some("a.x"), Some("/v2"), &[Method::POST]);
        assert!(all.covers(&below) && below.covers(&one) && one.covers(&one));
        assert!(!below.covers(&all) && !one.covers(&below));
        assert!(!forward(None, None, &[Method::PUT]).covers(&one));
        assert!(!forward(None, Some("/v"), &[]).covers(&one));
    }
}
