//! Which headers of an answer are stored with it.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Belong to one connection, or are computed anew: never stored, whatever the lists say.
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "content-length"
    )
}

/// Belong to one moment, one user or one trace, or are written by this layer on every answer anew.
fn is_usually_not_stored(name: &str) -> bool {
    matches!(
        name,
        "set-cookie"
            | "date"
            | "server"
            | "server-timing"
            | "alt-svc"
            | "authorization"
            | "www-authenticate"
            | "authentication-info"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-authentication-info"
            | "traceparent"
            | "tracestate"
            | "baggage"
            | "b3"
            | "x-b3-traceid"
            | "x-b3-spanid"
            | "x-b3-parentspanid"
            | "x-b3-sampled"
            | "x-request-id"
            | "request-id"
            | "x-correlation-id"
            | "correlation-id"
            | "x-trace-id"
            | "x-amzn-trace-id"
            | "x-amzn-requestid"
            | "x-cloud-trace-context"
            | "idempotency-key"
            | "idempotent-replayed"
            | "idempotency-expires"
            | "idempotency-stored"
            | "onlyonce-fail-open"
    )
}

/// Makes a head fit for a body with trailers: HTTP/1.1 has room for them only where there is no length, and where they are announced.
pub(crate) fn announce(headers: &mut HeaderMap, trailers: Option<&HeaderMap>) {
    let Some(trailers) = trailers else { return };
    headers.remove(header::CONTENT_LENGTH);
    let names: Vec<&str> = trailers.keys().map(HeaderName::as_str).collect();
    match HeaderValue::from_str(&names.join(", ")) {
        Ok(names) if !trailers.is_empty() => drop(headers.insert(header::TRAILER, names)),
        _ => drop(headers.remove(header::TRAILER)),
    }
}

/// Which headers are stored besides the rules that always hold.
///
/// Hop-by-hop headers, those named in `Connection`, and `Content-Length` are never stored, whatever the lists say.
///
/// ```
/// use http::HeaderName;
/// use onlyonce_http::StoredHeaders;
/// let rules = StoredHeaders {
///     allow: vec![HeaderName::from_static("x-request-id")],
///     deny: vec![HeaderName::from_static("x-served-by")],
/// };
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredHeaders {
    /// Stored, although they would not be by default.
    pub allow: Vec<HeaderName>,
    /// Not stored, although they would be by default.
    pub deny: Vec<HeaderName>,
}

impl StoredHeaders {
    /// The headers to store, repeated ones in their order.
    pub(crate) fn select<'a>(&'a self, headers: &'a HeaderMap) -> Selected<'a> {
        let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
        let hops = named.flat_map(|value| value.split(',')).map(str::trim).collect();
        Selected { rules: self, headers, hops }
    }

    fn keeps(&self, name: &HeaderName) -> bool {
        let text = name.as_str();
        if is_hop_by_hop(text) || self.deny.contains(name) {
            return false;
        }
        !is_usually_not_stored(text) || self.allow.contains(name)
    }
}

/// The headers of one answer that are stored.
pub(crate) struct Selected<'a> {
    rules: &'a StoredHeaders,
    headers: &'a HeaderMap,
    /// Named in `Connection`.
    hops: Vec<&'a str>,
}

impl Selected<'_> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.headers.iter().filter(|(name, _)| {
            !self.hops.iter().any(|hop| hop.eq_ignore_ascii_case(name.as_str())) && self.rules.keeps(name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(rules: &StoredHeaders, headers: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        rules.select(&map).iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect()
    }

    #[test]
    fn what_belongs_to_one_connection_moment_user_or_trace_is_not_stored() {
        let headers = [
            ("location", "/orders/7"),
            ("link", "a"),
            ("link", "b"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("set-cookie", "session=1"),
            ("date", "now"),
            ("server", "x"),
            ("www-authenticate", "Basic"),
            ("alt-svc", "h3"),
            ("traceparent", "00"),
            ("x-request-id", "1"),
            ("idempotency-key", "k"),
        ];
        assert_eq!(stored(&StoredHeaders::default(), &headers), ["location=/orders/7", "link=a", "link=b"]);
    }

    #[test]
    fn lists_add_and_remove_but_never_hop_by_hop() {
        let rules = StoredHeaders {
            allow: vec![header::SET_COOKIE, header::TRANSFER_ENCODING, header::CONTENT_LENGTH],
            deny: vec![header::LOCATION],
        };
        let headers = [
            ("location", "/"),
            ("set-cookie", "a=1"),
            ("transfer-encoding", "chunked"),
            ("content-length", "1"),
        ];
        assert_eq!(stored(&rules, &headers), ["set-cookie=a=1"]);
    }
}
