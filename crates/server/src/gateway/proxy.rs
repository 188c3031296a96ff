//! The service inside of the layer: it relays to the upstream and says what it knows about the outcome.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::uri::Uri;
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use onlyonce::http::{ProblemKind, Relayed, RequestBody, problem};
use onlyonce::{Class, Permit};
use tower_service::Service;

use super::answer::Answer;
use super::headers::{self, Peer};
use super::live::Live;
use super::outgoing::Outgoing;
use super::upstream::{Fault, Keyed, Undelivered, Upstream};
use crate::config::Speech;

/// Relays the requests of one caller.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    pub(crate) live: Arc<Live>,
    pub(crate) peer: Peer,
}

impl Service<Request<RequestBody<Incoming>>> for Proxy {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answer>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody<Incoming>>) -> Self::Future {
        let Self { live, peer } = self.clone();
        Box::pin(async move { Ok(relay(live, peer, request).await) })
    }
}

async fn relay(live: Arc<Live>, peer: Peer, request: Request<RequestBody<Incoming>>) -> Response<Answer> {
    let (mut parts, body) = request.into_parts();
    let Some(upstream) = live.routing.find(&parts) else {
        return own(ProblemKind::NotFound, &parts.headers, None, Class::Release);
    };
    let keyed = if parts.extensions.get::<Permit>().is_some() { Keyed::Yes } else { Keyed::No };
    let caller = parts.extensions.remove::<OnUpgrade>();
    let caller = caller.filter(|_| headers::wants_websocket(&parts.method, &parts.headers));
    // Only what a problem needs is kept of the caller's own head.
    let language = language(&parts.headers);
    headers::prepare(&mut parts, &peer, live.trust_forwarded);
    aim(&mut parts, upstream);
    parts.extensions.clear();
    let limit = if keyed == Keyed::Yes { None } else { live.limits.max_body };
    if keyed == Keyed::No && is_too_large(&parts.headers, limit) {
        return own(ProblemKind::RequestTooLarge, &language, None, Class::Release);
    }
    let outgoing = Outgoing::new(body, limit, live.limits.body_timeout);
    match upstream.send(Request::from_parts(parts, outgoing), keyed).await {
        Ok(response) => answered(response, caller),
        Err(undelivered) => refuse(undelivered, &language),
    }
}

/// Aims a request at an upstream.
pub(crate) fn aim(parts: &mut Parts, upstream: &Upstream) {
    let target = &upstream.target;
    let path = target.path(parts.uri.path_and_query());
    if target.speech == Speech::Http1 {
        // The host is in its header. A caller of HTTP/1.0 need not name one; an upstream of 1.1 wants one.
        if !parts.headers.contains_key(http::header::HOST)
            && let Ok(host) = http::HeaderValue::from_str(target.authority.as_str())
        {
            parts.headers.insert(http::header::HOST, host);
        }
        parts.uri = Uri::from(path);
        return;
    }
    // The authority is the host that the caller asked for, as in the host header.
    let asked = parts.headers.get(http::header::HOST).and_then(|host| host.to_str().ok()?.parse().ok());
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(target.scheme());
    uri.authority = Some(asked.unwrap_or_else(|| target.authority.clone()));
    uri.path_and_query = Some(path);
    if let Ok(uri) = Uri::from_parts(uri) {
        parts.uri = uri;
    }
}

fn language(headers: &HeaderMap) -> HeaderMap {
    let wanted = headers.get(http::header::ACCEPT_LANGUAGE).cloned();
    wanted.map(|value| (http::header::ACCEPT_LANGUAGE, value)).into_iter().collect()
}

fn is_too_large(headers: &HeaderMap, limit: Option<usize>) -> bool {
    let length =
        headers.get(http::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    limit.is_some_and(|limit| length.is_some_and(|length| length > limit as u64))
}

fn answered(mut response: Response<Answer>, caller: Option<OnUpgrade>) -> Response<Answer> {
    let outcome = headers::take_outcome(response.headers_mut());
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return switch(response, caller);
    }
    headers::strip_hop_by_hop(response.headers_mut());
    *response.version_mut() = http::Version::HTTP_11;
    let extensions = response.extensions_mut();
    extensions.insert(Relayed);
    if let Some(outcome) = outcome {
        extensions.insert(outcome);
    }
    response
}

/// Connects caller and upstream with each other; from now on the bytes are theirs.
fn switch(mut response: Response<Answer>, caller: Option<OnUpgrade>) -> Response<Answer> {
    let (Some(caller), Some(link)) = (caller, response.body_mut().take_link()) else {
        return own(
            ProblemKind::UpstreamFailed,
            &HeaderMap::new(),
            Some("the upstream switched protocols without being asked"),
            Class::Unknown,
        );
    };
    let upstream = hyper::upgrade::on(&mut response);
    link.hand_over();
    tokio::spawn(async move {
        if let (Ok(caller), Ok(upstream)) = tokio::join!(caller, upstream) {
            let (mut caller, mut upstream) = (TokioIo::new(caller), TokioIo::new(upstream));
            // Either end may close whenever it likes.
            let _ = tokio::io::copy_bidirectional(&mut caller, &mut upstream).await;
        }
    });
    let (parts, _) = response.into_parts();
    let mut answer = Response::new(Answer::own(bytes::Bytes::new()));
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = parts.headers;
    answer
}

fn refuse(undelivered: Undelivered, request: &HeaderMap) -> Response<Answer> {
    let (kind, why, class) = match undelivered {
        Undelivered::NeverSent(why) => (ProblemKind::UpstreamUnreachable, why, Class::Release),
        Undelivered::Returned(_) => (ProblemKind::UpstreamUnreachable, String::new(), Class::Release),
        Undelivered::Broken(why) => (ProblemKind::UpstreamFailed, why, Class::Unknown),
        Undelivered::Late => {
            (ProblemKind::UpstreamTimeout, "response_timeout is over".into(), Class::Unknown)
        }
        // A body that belongs to a key was read before, so these have none.
        Undelivered::Caller(Fault::TooLarge) => (ProblemKind::RequestTooLarge, String::new(), Class::Unknown),
        Undelivered::Caller(Fault::Stalled) => (ProblemKind::RequestTimeout, String::new(), Class::Unknown),
        Undelivered::Caller(Fault::Broken) => (ProblemKind::BodyInvalid, String::new(), Class::Unknown),
    };
    tracing::warn!(problem = kind.name(), why, "the upstream did not answer");
    own(kind, request, None, class)
}

/// An answer of the gateway's own. What exactly failed is for the log: callers need not know the upstream's address.
fn own(kind: ProblemKind, request: &HeaderMap, why: Option<&str>, class: Class) -> Response<Answer> {
    let mut response = problem::response(kind, request, why).map(Answer::own);
    response.extensions_mut().insert(class);
    response
}
