//! Which headers go through, which stop here, and which are added.

use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Version};
use onlyonce::{Class, Permit};

use super::hops;
use super::names::folded;

const FENCE: HeaderName = HeaderName::from_static("onlyonce-fence");
const OUTCOME: HeaderName = HeaderName::from_static("onlyonce-outcome");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Who calls, as the socket says.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// The address as it is told to the upstream: made once for all requests of a connection.
    ip: HeaderValue,
    tls: bool,
}

impl Peer {
    pub(crate) fn new(ip: IpAddr, tls: bool) -> Self {
        let ip = HeaderValue::try_from(ip.to_canonical().to_string());
        Self { ip: ip.unwrap_or_else(|_| HeaderValue::from_static("unknown")), tls }
    }
}

const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// Whether a request wants to be a WebSocket. The wish for any other protocol is not heard, as RFC 9110 allows: behind h2c or an unknown
/// one, calls would pass unseen.
pub(crate) fn wants_websocket(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::GET
        && headers.contains_key(header::UPGRADE)
        && named_in(headers, header::UPGRADE).any(|name| name.eq_ignore_ascii_case("websocket"))
        && named_in(headers, header::CONNECTION).any(|name| name.eq_ignore_ascii_case("upgrade"))
}

/// Whether a caller says that it sends nothing behind this request.
pub(crate) fn is_last(version: Version, headers: &HeaderMap) -> bool {
    let says = |word: &str| named_in(headers, header::CONNECTION).any(|name| name.eq_ignore_ascii_case(word));
    match version {
        Version::HTTP_11 => says("close"),
        Version::HTTP_2 => false,
        _ => !says("keep-alive"),
    }
}

fn named_in(headers: &HeaderMap, list: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(list).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Whether a header may not simply go through. One look at every name is cheaper than a search for each of these, and most messages
/// have none.
pub(crate) fn is_special(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "te"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "expect"
            | "onlyonce-fence"
            | "onlyonce-outcome"
    )
}

/// Takes out what belongs to one connection only.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if !headers.keys().any(is_special) {
        return;
    }
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> =
            named_in(headers, header::CONNECTION).filter_map(|name| name.parse().ok()).collect();
        for name in named {
            headers.remove(name);
        }
        headers.remove(header::CONNECTION);
    }
    // gRPC needs this one word of it.
    let trailers =
        headers.get(header::TE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"));
    for name in [
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        HTTP2_SETTINGS,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        header::PROXY_AUTHENTICATE,
    ] {
        headers.remove(name);
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Takes out what is not for the upstream.
fn strip(method: &Method, headers: &mut HeaderMap) {
    if !headers.keys().any(is_special) {
        return;
    }
    let websocket = wants_websocket(method, headers);
    strip_hop_by_hop(headers);
    headers.remove(header::PROXY_AUTHORIZATION);
    // The gateway has said "continue" itself.
    headers.remove(header::EXPECT);
    // Words between gateway and upstream, which a caller must not say.
    headers.remove(FENCE);
    headers.remove(OUTCOME);
    if websocket {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, WEBSOCKET);
    }
}

/// Makes the head of a caller's request the head of the gateway's own.
pub(crate) fn prepare(parts: &mut Parts, peer: &Peer, trust_forwarded: bool) {
    strip(&parts.method, &mut parts.headers);
    name_host(parts);
    let headers = &mut parts.headers;
    hops::count_down(&parts.method, headers);
    join_cookies(headers);
    let chain = if headers.contains_key(FORWARDED_FOR) { joined(headers, &peer.ip) } else { peer.ip.clone() };
    headers.insert(FORWARDED_FOR, chain);
    if !trust_forwarded || !headers.contains_key(FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static(if peer.tls { "https" } else { "http" }));
    }
    if let Some(host) = headers.get(header::HOST).cloned()
        && (!trust_forwarded || !headers.contains_key(FORWARDED_HOST))
    {
        headers.insert(FORWARDED_HOST, host);
    }
    fence(parts);
}

/// The upstream sees the host that the caller asked for, also where the caller named it in its URI.
pub(crate) fn name_host(parts: &mut Parts) {
    if let Some(target) = parts.uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
        parts.headers.insert(header::HOST, target);
    }
}

/// HTTP/2 may send every cookie in a field of its own; services of HTTP/1.1 expect one line (RFC 9113, 8.2.3), and some read no other.
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(header::COOKIE).iter().nth(1).is_none() {
        return;
    }
    let lines = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes);
    let lines: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).collect();
    if let Ok(joined) = HeaderValue::from_maybe_shared(bytes::Bytes::from(lines.join(&b"; "[..]))) {
        headers.insert(header::COOKIE, joined);
    }
}

/// The chain, which may have come in several lines, with one more behind it; one that can't be read begins anew.
fn joined(headers: &HeaderMap, ip: &HeaderValue) -> HeaderValue {
    let before = headers.get_all(FORWARDED_FOR).iter();
    let chain: Vec<&[u8]> = before.chain([ip]).map(HeaderValue::as_bytes).collect();
    HeaderValue::from_maybe_shared(bytes::Bytes::from(chain.join(&b", "[..]))).unwrap_or_else(|_| ip.clone())
}

/// Tells the upstream which attempt this is; one that refuses lower fences than it has seen can't be written by a zombie.
pub(crate) fn fence(parts: &mut Parts) {
    if let Some(permit) = parts.extensions.get::<Permit>() {
        parts.headers.insert(FENCE, HeaderValue::from(permit.fence().0));
    }
}

pub(crate) fn insert_fence(headers: &mut HeaderMap, permit: &Permit) {
    headers.insert(FENCE, HeaderValue::from(permit.fence().0));
}

/// Takes the upstream's own word about its answer out of it. Whatever is unclear there is unknown: a guess could run a call twice.
pub(crate) fn take_outcome(headers: &mut HeaderMap) -> Option<Class> {
    let names: Vec<HeaderName> = headers.keys().filter(|name| is_outcome(name)).cloned().collect();
    if names.is_empty() {
        return None;
    }
    let mut said: Vec<Option<Class>> = headers.get_all(OUTCOME).iter().map(word).collect();
    said.dedup();
    for name in &names {
        headers.remove(name);
    }
    match (names.as_slice(), said.as_slice()) {
        ([name], [Some(class)]) if *name == OUTCOME => Some(*class),
        _ => {
            tracing::warn!(
                "the upstream did not say clearly one of keep, release and unknown in Onlyonce-Outcome: the outcome is unknown"
            );
            Some(Class::Unknown)
        }
    }
}

/// Whether this is the upstream's word about its answer, or what it may have meant to be.
fn is_outcome(name: &HeaderName) -> bool {
    folded(name.as_str()) == OUTCOME.as_str()
}

fn word(value: &HeaderValue) -> Option<Class> {
    match value.as_bytes() {
        b"keep" => Some(Class::Keep),
        b"release" => Some(Class::Release),
        b"unknown" => Some(Class::Unknown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_uri_is_still_known_when_the_uri_is_replaced() {
        let (mut parts, ()) = http::Request::post("https://shop.example/pay").body(()).unwrap().into_parts();
        name_host(&mut parts);
        parts.uri = http::Uri::from_static("/by-key/1");
        prepare(&mut parts, &Peer::new([127, 0, 0, 1].into(), false), false);
        assert_eq!(parts.headers[header::HOST], "shop.example");
        assert_eq!(parts.headers[FORWARDED_HOST], "shop.example");
    }
}
