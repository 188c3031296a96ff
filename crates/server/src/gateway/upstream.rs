//! An upstream and the connections to it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::HOST;
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use onlyonce::{Clock, SystemClock};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::answer::Answer;
use super::flow::Flow;
use super::idle::{IdleLimit, PROOFS, Watch};
use super::link::Link;
use super::multiplexed::Multiplexed;
use super::outgoing::{BodyFault, Outgoing};
use super::shared::{Chosen, Sent, Shared};
use super::sockets::Sockets;
use super::wire::{Wire, keep_alive};
use crate::config::{Limits, Speech, Target};

pub(super) const IDLE: Duration = Duration::from_secs(60);
/// How many idle connections are kept.
const MOST_IDLE: usize = 512;
/// How much of an answer may come over HTTP/2 before it is asked for. The connection as a whole has no limit of its own: callers that do
/// not read would use it up for all others.
const WINDOW: u32 = 128 << 10;
const WINDOW_OF_ALL: u32 = (1 << 31) - 1;
/// How large the head of an answer may be.
const MAX_HEAD: u32 = 64 << 10;
/// A connection that all requests share is asked whether it is still there so often, and given up after as long without a word.
const PING: Duration = Duration::from_secs(10);

/// Why there is no answer.
pub(crate) enum Undelivered {
    /// Not a byte of it was sent: here it is again.
    Returned(Box<Request<Outgoing>>),
    /// Not a byte of it was sent.
    NeverSent(String),
    /// It was sent, at least in part.
    Broken(String),
    /// It was sent, and nothing came back in time.
    Late,
    /// The caller's own body is at fault.
    Caller(Fault),
}

/// What was wrong with a caller's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    TooLarge,
    Stalled,
    Broken,
}

impl Undelivered {
    /// Sorts an error of a connection that had the request.
    pub(crate) fn of(error: &hyper::Error) -> Self {
        let mut cause: Option<&dyn std::error::Error> = Some(error);
        while let Some(error) = cause {
            if let Some(fault) = error.downcast_ref::<BodyFault>() {
                return Self::Caller(fault.of_caller());
            }
            // The upstream's word that it has not looked at the request: it refused the stream, or went away with a last stream
            // before it. Streams up to that one end with the connection, and with its error.
            match error.downcast_ref::<h2::Error>() {
                Some(error) if error.is_go_away() && error.is_remote() => {
                    return Self::NeverSent("the upstream went away before it looked at the stream".into());
                }
                Some(error) if error.is_remote() && error.reason() == Some(h2::Reason::REFUSED_STREAM) => {
                    return Self::NeverSent("the upstream refused the stream".into());
                }
                _ => {}
            }
            cause = error.source();
        }
        // Hyper calls a request canceled if the connection ended before it was taken from the queue.
        if error.is_canceled() { Self::NeverSent(told(error)) } else { Self::Broken(told(error)) }
    }
}

fn told(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// An upstream.
pub(crate) struct Upstream {
    pub(crate) target: Target,
    tls: TlsConnector,
    pub(super) limits: Limits,
    pub(crate) pool: Arc<Pool>,
    /// How many sockets there may be, for all upstreams together.
    sockets: Arc<Sockets>,
}

/// The connections to an upstream, which outlive a reload.
#[derive(Default)]
pub(crate) struct Pool {
    idle: Mutex<VecDeque<Link>>,
    idle_limit: IdleLimit,
    /// Those that requests share, where the upstream speaks HTTP/2.
    pub(super) shared: Shared,
}

impl Pool {
    /// Closes the connections that nobody uses.
    pub(crate) fn close_idle(&self) {
        // Dropped outside of the lock.
        let idle = std::mem::take(&mut *self.idle.lock());
        drop(idle);
        self.shared.close_idle();
    }
}

/// Whether a request is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyed {
    Yes,
    No,
}

pub(super) fn closed_at_once<T>(sent: Result<T, Undelivered>) -> Result<T, Undelivered> {
    match sent {
        Err(Undelivered::Returned(_)) => {
            Err(Undelivered::NeverSent("the upstream closed the new connection at once".into()))
        }
        other => other,
    }
}

/// A connection that was just made.
pub(super) enum Made {
    One(Box<Link>),
    Many(Multiplexed),
}

impl Upstream {
    pub(crate) fn new(
        target: Target,
        tls: Arc<rustls::ClientConfig>,
        limits: Limits,
        pool: Arc<Pool>,
        sockets: Arc<Sockets>,
    ) -> Self {
        Self { target, tls: tls.into(), limits, pool, sockets }
    }

    /// Sends a request and waits for the head of its answer. `None` as time-out waits for ever.
    pub(crate) async fn send(
        self: &Arc<Self>,
        request: Request<Outgoing>,
        keyed: Keyed,
    ) -> Result<Response<Answer>, Undelivered> {
        // Boxed where it is rare: the memory of every request would be as large as that of the largest way.
        let mut request = match self.speaks() {
            Chosen::Http1 => request,
            _ => match Box::pin(self.send_multiplexed(request, keyed)).await {
                Sent::Done(sent) => return sent,
                Sent::Alone(request) => request,
            },
        };
        while let Some((link, age)) = self.take_idle(keyed).await {
            let sent = self.send_on(link, request).await;
            if let Err(Undelivered::Returned(_) | Undelivered::Broken(_)) = &sent {
                self.pool.idle_limit.found_closed(age);
            }
            match sent {
                // The upstream had closed it meanwhile; nothing was sent.
                Err(Undelivered::Returned(returned)) => request = *returned,
                other => return other,
            }
        }
        Box::pin(self.send_anew(request)).await
    }

    /// What the upstream speaks, as far as that is known.
    pub(super) fn speaks(&self) -> Chosen {
        match self.target.speech {
            Speech::Http1 => Chosen::Http1,
            Speech::H2c => Chosen::Http2,
            Speech::Tls => self.pool.shared.chosen(),
        }
    }

    async fn send_anew(
        self: &Arc<Self>,
        request: Request<Outgoing>,
    ) -> Result<Response<Answer>, Undelivered> {
        let sent = match self.connect().await? {
            Made::One(link) => self.send_on(*link, request).await,
            Made::Many(shared) => {
                // Nobody else knows of it yet.
                let stream = shared.take();
                self.pool.shared.add(shared.clone());
                match stream {
                    Some(stream) => self.send_shared(shared, stream, request).await,
                    None => Err(Undelivered::Returned(Box::new(request))),
                }
            }
        };
        closed_at_once(sent)
    }

    pub(super) async fn send_on(
        self: &Arc<Self>,
        mut link: Link,
        mut request: Request<Outgoing>,
    ) -> Result<Response<Answer>, Undelivered> {
        write_as_http1(&mut request);
        request.body_mut().goes_on(None);
        let method = request.method().clone();
        let flow = request.body().flow();
        let response = self.in_time(flow.as_deref(), link.send(request)).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Answer::switching(response, link, Arc::clone(self)));
        }
        Answer::on(response, &method, link, Arc::clone(self), flow).await
    }

    /// How long an answer may be silent, before its head and within it.
    pub(crate) fn patience(&self) -> Duration {
        self.limits.response_timeout
    }

    /// The time runs from the last piece of the request that the upstream took.
    pub(super) async fn in_time<T>(
        &self,
        flow: Option<&Flow>,
        sent: impl Future<Output = Result<T, Undelivered>>,
    ) -> Result<T, Undelivered> {
        let limit = self.limits.response_timeout;
        let (mut wait, mut sent) = (limit, std::pin::pin!(sent));
        loop {
            if let Ok(sent) = tokio::time::timeout(wait, sent.as_mut()).await {
                return sent;
            }
            // A body that fails in the same moment was waited for, and not the upstream.
            if let Some(fault) = flow.and_then(|flow| flow.fault.get()) {
                return Err(Undelivered::Caller(*fault));
            }
            match flow.and_then(|flow| flow.left_for_upstream(limit)) {
                Some(left) => wait = left,
                None => return Err(Undelivered::Late),
            }
        }
    }

    /// How long a connection may have idled that is used.
    fn usable(&self, keyed: Keyed) -> Duration {
        match (keyed, self.limits.upstream_idle) {
            (Keyed::Yes, Some(limit)) => limit,
            (Keyed::Yes, None) => self.pool.idle_limit.for_keyed(),
            (Keyed::No, None) if self.pool.idle_limit.closes_early() => Duration::ZERO,
            (Keyed::No, _) => IDLE,
        }
    }

    /// A connection that is idle, and for how long it was.
    async fn take_idle(&self, keyed: Keyed) -> Option<(Link, Duration)> {
        let limit = self.usable(keyed);
        loop {
            let (mut link, age) = {
                let mut idle = self.pool.idle.lock();
                // The one that was used last is at the end; if it idled too long, so did all others.
                let age = SystemClock.now().since(idle.back()?.idle_since);
                if age >= limit {
                    return None;
                }
                (idle.pop_back()?, age)
            };
            if link.is_ready().await {
                return Some((link, age));
            }
            self.pool.idle_limit.found_closed(age);
        }
    }

    /// Takes a connection back whose answer has come whole. If it came before all of its request was sent, the rest goes first.
    pub(crate) fn give_back(self: Arc<Self>, mut link: Link) {
        if !link.is_sending() {
            return self.keep(link);
        }
        tokio::spawn(async move {
            if link.send_rest(self.limits.body_timeout).await {
                self.keep(link);
            }
        });
    }

    fn keep(self: Arc<Self>, mut link: Link) {
        // One that its upstream has closed with the answer, as it said, tells nothing about idle ones.
        if link.is_over() {
            return;
        }
        let now = SystemClock.now();
        link.idle_since = now;
        if self.limits.upstream_idle.is_none() && self.pool.idle_limit.begins_watch(now) {
            tokio::spawn(self.watch(link));
            return;
        }
        let mut idle = self.pool.idle.lock();
        let surplus = |oldest: &Link, count| count > MOST_IDLE || now.since(oldest.idle_since) > IDLE;
        idle.push_back(link);
        while idle.front().is_some_and(|oldest| surplus(oldest, idle.len())) {
            idle.pop_front();
        }
    }

    /// Sees for how long the upstream keeps a connection that nobody uses.
    async fn watch(self: Arc<Self>, mut link: Link) {
        let since = link.idle_since;
        for proof in PROOFS {
            let left = proof.saturating_sub(SystemClock.now().since(since));
            if tokio::time::timeout(left, link.closed()).await.is_ok() {
                return self.pool.idle_limit.closed(SystemClock.now().since(since));
            }
            if self.pool.idle_limit.survived(proof, SystemClock.now()) == Watch::Ends {
                break;
            }
        }
        self.pool.idle.lock().push_front(link);
    }

    /// Closes connections that nobody used for long.
    pub(crate) fn tidy(&self) {
        let now = SystemClock.now();
        self.pool.idle.lock().retain(|link| now.since(link.idle_since) <= IDLE);
        self.pool.shared.tidy(IDLE);
    }

    pub(super) async fn connect(&self) -> Result<Made, Undelivered> {
        let made = tokio::time::timeout(self.limits.connect_timeout, self.try_connect()).await;
        let made = made.unwrap_or_else(|_| Err("connecting took too long".into()));
        made.map_err(|why| Undelivered::NeverSent(format!("{}: {why}", self.target.authority)))
    }

    async fn try_connect(&self) -> Result<Made, String> {
        let place = self.sockets.place().await?;
        let socket = TcpStream::connect((self.target.host.as_str(), self.target.port)).await;
        let socket = socket.map_err(|error| error.to_string())?;
        // A request is written at once; waiting for more would only delay it.
        let _ = socket.set_nodelay(true);
        keep_alive(&socket);
        let (wire, multiplexed) = match self.target.speech {
            Speech::Http1 => (Wire::Plain(socket), false),
            Speech::H2c => (Wire::Plain(socket), true),
            Speech::Tls => {
                let name =
                    ServerName::try_from(self.target.host.clone()).map_err(|error| error.to_string())?;
                let stream = self.tls.connect(name, socket).await.map_err(|error| error.to_string())?;
                let multiplexed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                (Wire::Asked(Box::new(stream)), multiplexed)
            }
        };
        if !multiplexed {
            self.pool.shared.choose(Chosen::Http1);
            let link = Link::new(wire, place, SystemClock.now()).await.map_err(|error| told(&error))?;
            return Ok(Made::One(Box::new(link)));
        }
        let handshake = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW_OF_ALL)
            .max_header_list_size(MAX_HEAD)
            // None before the upstream has said how many it allows.
            .initial_max_send_streams(0)
            .handshake(TokioIo::new(wire))
            .await;
        let (sender, connection) = handshake.map_err(|error| told(&error))?;
        let connection = Multiplexed::drive(sender, connection, place, self.pool.shared.freed());
        connection.settled().await;
        self.pool.shared.choose(Chosen::Http2);
        Ok(Made::Many(connection))
    }
}

/// Writes a request as HTTP/1.1 has it, with the host in its header; HTTP/2 may have given it back, with the host in its target.
fn write_as_http1<B>(request: &mut Request<B>) {
    let host = request.uri().authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    if let Some(host) = host {
        request.headers_mut().insert(HOST, host);
    }
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
    *request.version_mut() = Version::HTTP_11;
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool(..)")
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("target", &self.target).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared::write_as_http2;
    use super::*;

    #[test]
    fn a_request_that_one_protocol_gives_back_goes_by_the_other_with_its_host() {
        let target = Target::parse("https://inner.example:8443").unwrap();
        let mut request = Request::post("/pay?x=1").header(HOST, "shop.example").body(()).unwrap();
        for _ in 0..2 {
            write_as_http2(&mut request, &target);
            assert_eq!(request.uri(), "https://shop.example/pay?x=1");
            assert!(!request.headers().contains_key(HOST));
            write_as_http1(&mut request);
            assert_eq!(
                (request.uri().to_string().as_str(), &request.headers()[HOST]),
                ("/pay?x=1", &HeaderValue::from_static("shop.example"))
            );
        }
    }
}
