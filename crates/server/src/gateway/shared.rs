//! The connections to an upstream that speaks HTTP/2. One that is full is joined by another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use http::header::HOST;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri, Version};
use hyper::client::conn::http2;
use onlyonce::{Clock as _, SystemClock};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedMutexGuard};

use super::answer::Answer;
use super::flow::Flow;
use super::idle::MOST_KEYED;
use super::link::Link;
use super::multiplexed::{Multiplexed, Stream};
use super::outgoing::Outgoing;
use super::upstream::{IDLE, Keyed, Made, Undelivered, Upstream, closed_at_once};
use crate::config::Target;

/// How many connections of HTTP/2 may give a request back, because the upstream has closed them, before that is told.
const MOST_RETURNS: usize = 8;
/// How often those who wait for a stream look by themselves.
const LOOK: Duration = Duration::from_millis(100);

/// The connections that requests share.
#[derive(Default)]
pub(super) struct Shared {
    /// The oldest first, which is used as long as it has streams: so the others can end.
    all: Mutex<Vec<Multiplexed>>,
    /// Who has it makes the next connection: a crowd that waits needs one, and not one each.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Told when a stream may be free.
    freed: Arc<Notify>,
    chosen: AtomicU8,
}

/// What the upstream chose to speak within TLS, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chosen {
    Nothing,
    Http1,
    Http2,
}

impl Shared {
    pub(super) fn chosen(&self) -> Chosen {
        match self.chosen.load(Ordering::Relaxed) {
            0 => Chosen::Nothing,
            1 => Chosen::Http1,
            _ => Chosen::Http2,
        }
    }

    pub(super) fn choose(&self, chosen: Chosen) {
        self.chosen.store(chosen as u8, Ordering::Relaxed);
    }

    /// A stream on a connection that was of use within this time; others are let go.
    pub(super) fn free(&self, limit: Duration) -> Option<(Multiplexed, Stream)> {
        let (now, mut all) = (SystemClock.now(), self.all.lock());
        all.retain(|shared| !shared.sender.is_closed() && now.since(shared.used) <= limit);
        all.iter_mut().find_map(|shared| {
            let stream = shared.take()?;
            shared.used = now;
            Some((shared.clone(), stream))
        })
    }

    /// Waits until it is worth to look again.
    pub(super) async fn changed(&self) {
        let _ = tokio::time::timeout(LOOK, self.freed.notified()).await;
    }

    pub(super) fn freed(&self) -> Arc<Notify> {
        Arc::clone(&self.freed)
    }

    /// The right to make one more connection, if nobody has it.
    pub(super) fn turn(&self) -> Option<OwnedMutexGuard<()>> {
        Arc::clone(&self.turn).try_lock_owned().ok()
    }

    pub(super) fn add(&self, connection: Multiplexed) {
        self.all.lock().push(connection);
        self.freed.notify_waiters();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.lock().is_empty()
    }

    /// The connection was just of use.
    pub(super) fn touch(&self, number: u64) {
        if let Some(shared) = self.all.lock().iter_mut().find(|shared| shared.number == number) {
            shared.used = SystemClock.now();
        }
    }

    /// No new request uses the connection; those that are under way may go on.
    pub(super) fn retire(&self, number: u64) {
        self.all.lock().retain(|shared| shared.number != number);
    }

    /// Lets go of connections that were of no use for so long.
    pub(super) fn tidy(&self, limit: Duration) {
        let now = SystemClock.now();
        self.all.lock().retain(|shared| now.since(shared.used) <= limit);
    }

    /// Lets go of connections that nobody uses.
    pub(super) fn close_idle(&self) {
        self.all.lock().retain(Multiplexed::is_in_use);
    }
}

/// What a request goes on, where several may share a connection.
enum Way {
    Shared(Multiplexed, Stream),
    /// The upstream speaks HTTP/1.1; perhaps with the connection that showed it.
    Unshared(Option<Box<Link>>),
}

/// What became of a request that was to share a connection.
pub(super) enum Sent {
    Done(Result<Response<Answer>, Undelivered>),
    /// The upstream speaks HTTP/1.1.
    Alone(Request<Outgoing>),
}

impl Upstream {
    /// Sends on a connection that others use too, unless the upstream turns out to speak HTTP/1.1.
    pub(super) async fn send_multiplexed(
        self: &Arc<Self>,
        mut request: Request<Outgoing>,
        keyed: Keyed,
    ) -> Sent {
        // The upstream may have closed each of those that there are.
        for _ in 0..MOST_RETURNS {
            let sent = match self.stream(keyed).await {
                Err(undelivered) => Err(undelivered),
                Ok(Way::Unshared(None)) => return Sent::Alone(request),
                Ok(Way::Unshared(Some(link))) => {
                    return Sent::Done(closed_at_once(self.send_on(*link, request).await));
                }
                Ok(Way::Shared(shared, stream)) => self.send_shared(shared, stream, request).await,
            };
            match sent {
                Err(Undelivered::Returned(returned)) => request = *returned,
                other => return Sent::Done(other),
            }
        }
        Sent::Done(closed_at_once(Err(Undelivered::Returned(Box::new(request)))))
    }

    /// A stream, on a connection that there is, or on one more if they are full; and if there can be no more, whatever is free first.
    async fn stream(self: &Arc<Self>, keyed: Keyed) -> Result<Way, Undelivered> {
        let limit = if keyed == Keyed::Yes { self.limits.upstream_idle.unwrap_or(MOST_KEYED) } else { IDLE };
        let shared = &self.pool.shared;
        if let Some((connection, stream)) = shared.free(limit) {
            return Ok(Way::Shared(connection, stream));
        }
        let mut may_connect = true;
        let found = async {
            loop {
                if self.speaks() == Chosen::Http1 {
                    return Ok(Way::Unshared(None));
                }
                if let Some((connection, stream)) = shared.free(limit) {
                    return Ok(Way::Shared(connection, stream));
                }
                let turn = if may_connect { shared.turn() } else { None };
                let Some(turn) = turn else {
                    shared.changed().await;
                    continue;
                };
                // In a task of its own: whoever finds a stream meanwhile leaves the connection to the others.
                let mut joining = tokio::spawn(Arc::clone(self).join(turn));
                let joined = loop {
                    tokio::select! {
                        joined = &mut joining => break joined,
                        () = shared.changed() => {}
                    }
                    if let Some((connection, stream)) = shared.free(limit) {
                        return Ok(Way::Shared(connection, stream));
                    }
                };
                match joined {
                    Ok(Ok(None)) => {}
                    Ok(Ok(Some(link))) => return Ok(Way::Unshared(Some(link))),
                    // Those that are full are all that there is.
                    Ok(Err(_)) if !shared.is_empty() => may_connect = false,
                    Ok(Err(why)) => return Err(why),
                    Err(_) => return Err(Undelivered::NeverSent("connecting was stopped".into())),
                }
            }
        };
        let wait = self.limits.connect_timeout;
        tokio::time::timeout(wait, found).await.unwrap_or_else(|_| {
            let why = if shared.is_empty() { "connecting took" } else { "a free stream was not there for" };
            Err(Undelivered::NeverSent(format!("{}: {why} longer than {wait:?}", self.target.authority)))
        })
    }

    /// Makes one more connection that all may use; or one that none else can, if the upstream chooses HTTP/1.1.
    async fn join(self: Arc<Self>, turn: OwnedMutexGuard<()>) -> Result<Option<Box<Link>>, Undelivered> {
        let made = self.connect().await;
        let link = match made? {
            Made::One(link) => Some(link),
            Made::Many(connection) => {
                self.pool.shared.add(connection);
                None
            }
        };
        drop(turn);
        Ok(link)
    }

    /// Sends on a connection that others use too. One that leaves a request without an answer may be dead: no other is sent on it.
    pub(super) async fn send_shared(
        &self,
        shared: Multiplexed,
        stream: Stream,
        mut request: Request<Outgoing>,
    ) -> Result<Response<Answer>, Undelivered> {
        request.body_mut().goes_on(Some(stream.clone()));
        let patience = self.patience();
        let flow = request.body().flow();
        let sent = send_shared(shared.sender, stream, request, &self.target, patience, flow.clone());
        let sent = self.in_time(flow.as_deref(), sent).await;
        match &sent {
            Ok(_) => self.pool.shared.touch(shared.number),
            Err(Undelivered::Late | Undelivered::Returned(_)) => self.pool.shared.retire(shared.number),
            Err(_) => {}
        }
        sent
    }
}

/// Writes a request as HTTP/2 has it, with the host in its target.
pub(super) fn write_as_http2<B>(request: &mut Request<B>, target: &Target) {
    let asked = request.headers_mut().remove(HOST);
    *request.version_mut() = Version::HTTP_2;
    if request.uri().authority().is_some() {
        return;
    }
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    let asked = asked.and_then(|host| host.to_str().ok()?.parse().ok());
    parts.scheme = Some(target.scheme());
    parts.authority = Some(asked.unwrap_or_else(|| target.authority.clone()));
    parts.path_and_query.get_or_insert_with(|| PathAndQuery::from_static("/"));
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

async fn send_shared(
    mut sender: http2::SendRequest<Outgoing>,
    stream: Stream,
    mut request: Request<Outgoing>,
    target: &Target,
    patience: Duration,
    flow: Option<Arc<Flow>>,
) -> Result<Response<Answer>, Undelivered> {
    write_as_http2(&mut request, target);
    if sender.ready().await.is_err() {
        return Err(Undelivered::Returned(Box::new(request)));
    }
    let method = request.method().clone();
    match sender.try_send_request(request).await {
        Ok(response) => Answer::shared(response, &method, stream, patience, flow).await,
        Err(mut refused) => Err(match refused.take_message() {
            Some(request) => Undelivered::Returned(Box::new(request)),
            None => match flow.and_then(|flow| flow.fault.get().copied()) {
                Some(fault) => Undelivered::Caller(fault),
                None => Undelivered::of(&refused.into_error()),
            },
        }),
    }
}
