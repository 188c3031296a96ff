//! The service inside of the layer: it relays to the upstream and says what it knows about the outcome.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::uri::Uri;
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use onlyonce::http::{ProblemKind, Relayed, RequestBody, problem};
use onlyonce::{Class, Permit};
use tower_service::Service;

use super::answer::Answer;
use super::caller_body::CallerBody;
use super::headers::{self, Peer};
use super::live::Live;
use super::outgoing::Outgoing;
use super::serve::watch_for_slowness;
use super::shared::Chosen;
use super::upstream::{Fault, Keyed, Undelivered, Upstream};
use super::wire::{Doings, HeadMemory};
use super::{framing, silence};
use crate::config::{Limits, TooLong};

/// Relays the requests of one caller.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    pub(crate) live: Arc<Live>,
    pub(crate) peer: Peer,
    /// The caller's connection.
    pub(crate) doings: Arc<Doings>,
}

impl Service<Request<RequestBody<CallerBody>>> for Proxy {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answer>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody<CallerBody>>) -> Self::Future {
        // From now on nothing may be taken away from it.
        request.extensions().get::<HeadMemory>().into_iter().for_each(HeadMemory::keep);
        let Self { live, peer, doings } = self.clone();
        Box::pin(async move { Ok(relay(live, peer, doings, request).await) })
    }
}

async fn relay(
    live: Arc<Live>,
    peer: Peer,
    doings: Arc<Doings>,
    request: Request<RequestBody<CallerBody>>,
) -> Response<Answer> {
    let (mut parts, mut body) = request.into_parts();
    let Some(upstream) = live.routing.find(&parts) else {
        return own(ProblemKind::NotFound, &parts.headers, None, Class::Release);
    };
    let keyed = if parts.extensions.get::<Permit>().is_some() { Keyed::Yes } else { Keyed::No };
    let caller = parts.extensions.remove::<OnUpgrade>();
    let caller = caller.filter(|_| headers::wants_websocket(&parts.method, &parts.headers));
    let caller = caller.map(|upgrade| Tunnel { caller: upgrade, doings, limits: live.limits });
    // Only what a problem needs is kept of the caller's own head.
    let language = language(&parts.headers);
    let is_grpc = upstream.speaks() != Chosen::Http1
        && body.is_passed_on()
        && silence::is_grpc(parts.version, &parts.headers);
    headers::prepare(&mut parts, &peer, live.trust_forwarded);
    if aim(&mut parts, upstream).is_err() {
        return own(ProblemKind::TargetTooLong, &language, None, Class::Release);
    }
    // HTTP/2 lets the same length pass twice, and services of HTTP/1 do not.
    let lengths = parts.headers.get_all(http::header::CONTENT_LENGTH).iter().count();
    if lengths > 1 && framing::settle(&mut parts.headers).is_err() {
        return own(ProblemKind::RequestAmbiguous, &language, Some("it has two lengths"), Class::Release);
    }
    // Held until there is an answer: the caller may leave, and the call goes on.
    let memory = parts.extensions.remove::<HeadMemory>();
    parts.extensions.clear();
    let limit = if keyed == Keyed::Yes { None } else { live.limits.max_body };
    if keyed == Keyed::No && is_too_large(&parts.headers, limit) {
        return own(ProblemKind::RequestTooLarge, &language, None, Class::Release);
    }
    // With its head a service of HTTP/1 has all of such a request, and HTTP/2 may still break it off, or have hidden something behind it.
    if let Some(passed) = body.passed_mut().filter(|_| framing::is_empty(&parts.headers)) {
        let ended = tokio::time::timeout(live.limits.body_timeout, passed.end_of_nothing()).await;
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return refuse(Undelivered::Caller(Fault::Broken), &language, keyed),
            Err(_) => return refuse(Undelivered::Caller(Fault::Stalled), &language, keyed),
        }
    }
    // One for which there is no place has the time-outs of all others.
    let quiet = is_grpc.then(|| Arc::clone(&live.quiet).try_acquire_owned().ok()).flatten();
    let patience = live.limits.body_timeout;
    let outgoing = Outgoing::new(body, limit, patience, Arc::clone(&live.names), quiet);
    let sent = upstream.send(Request::from_parts(parts, outgoing), keyed).await;
    drop(memory);
    match sent {
        Ok(response) => answered(response, caller, keyed),
        Err(undelivered) => refuse(undelivered, &language, keyed),
    }
}

/// Aims a request at an upstream. Its host is in its header, whatever the upstream speaks.
pub(crate) fn aim(parts: &mut Parts, upstream: &Upstream) -> Result<(), TooLong> {
    let target = &upstream.target;
    let path = target.path(parts.uri.path_and_query())?;
    // A caller of HTTP/1.0 need not name a host; an upstream wants one.
    if !parts.headers.contains_key(http::header::HOST)
        && let Ok(host) = http::HeaderValue::from_str(target.authority.as_str())
    {
        parts.headers.insert(http::header::HOST, host);
    }
    parts.uri = Uri::from(path);
    Ok(())
}

fn language(headers: &HeaderMap) -> HeaderMap {
    let wanted = headers.get(http::header::ACCEPT_LANGUAGE).cloned();
    wanted.map(|value| (http::header::ACCEPT_LANGUAGE, value)).into_iter().collect()
}

fn is_too_large(headers: &HeaderMap, limit: Option<usize>) -> bool {
    limit.is_some_and(|limit| framing::one_length(headers).is_some_and(|length| length > limit as u64))
}

fn answered(mut response: Response<Answer>, caller: Option<Tunnel>, keyed: Keyed) -> Response<Answer> {
    let outcome = headers::take_outcome(response.headers_mut());
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return switch(response, caller);
    }
    response.body_mut().keyed = keyed;
    headers::strip_hop_by_hop(response.headers_mut());
    *response.version_mut() = http::Version::HTTP_11;
    let extensions = response.extensions_mut();
    extensions.insert(Relayed);
    if let Some(outcome) = outcome {
        extensions.insert(outcome);
    }
    response
}

/// A caller who wants to speak another protocol.
struct Tunnel {
    caller: OnUpgrade,
    doings: Arc<Doings>,
    limits: Limits,
}

impl Tunnel {
    /// Passes bytes on, both ways, until an end closes, or nothing moves for too long.
    async fn run(self, upstream: OnUpgrade) {
        let Self { caller, doings, limits } = self;
        let Ok((caller, upstream)) = tokio::try_join!(caller, upstream) else { return };
        doings.becomes_tunnel();
        let (mut caller, mut upstream) = (TokioIo::new(caller), TokioIo::new(upstream));
        tokio::select! {
            // Either end may close whenever it likes.
            _ = tokio::io::copy_bidirectional(&mut caller, &mut upstream) => {}
            _ = watch_for_slowness(&doings, limits) => {}
        }
    }
}

/// Connects caller and upstream with each other; from now on the bytes are theirs.
fn switch(mut response: Response<Answer>, caller: Option<Tunnel>) -> Response<Answer> {
    let (Some(tunnel), Some(link)) = (caller, response.body_mut().take_link()) else {
        return own(
            ProblemKind::UpstreamFailed,
            &HeaderMap::new(),
            Some("the upstream switched protocols without being asked"),
            Class::Unknown,
        );
    };
    let upstream = hyper::upgrade::on(&mut response);
    link.hand_over();
    tokio::spawn(tunnel.run(upstream));
    let (parts, _) = response.into_parts();
    let mut answer = Response::new(Answer::own(bytes::Bytes::new()));
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = parts.headers;
    answer
}

fn refuse(undelivered: Undelivered, request: &HeaderMap, keyed: Keyed) -> Response<Answer> {
    let is_callers = matches!(undelivered, Undelivered::Caller(_));
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
    if is_callers {
        onlyonce::seldom!(info, problem = kind.name(), "the caller's body did not come whole");
    } else {
        onlyonce::seldom!(warn, problem = kind.name(), why, "the upstream did not answer");
    }
    match keyed {
        Keyed::Yes => told(kind, class),
        Keyed::No => own(kind, request, None, class),
    }
}

/// What the layer tells the caller, by the rules of the route.
fn told(kind: ProblemKind, class: Class) -> Response<Answer> {
    let mut response = Response::new(Answer::own(bytes::Bytes::new()));
    *response.status_mut() = kind.status();
    response.extensions_mut().insert(class);
    response.extensions_mut().insert(kind);
    response
}

/// An answer of the gateway's own. What exactly failed is for the log: callers need not know the upstream's address.
fn own(kind: ProblemKind, request: &HeaderMap, why: Option<&str>, class: Class) -> Response<Answer> {
    let mut response = problem::response(kind, request, why).map(Answer::own);
    response.extensions_mut().insert(class);
    response
}
