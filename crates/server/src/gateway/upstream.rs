//! An upstream and the connections to it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use onlyonce::{Clock, SystemClock};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::answer::Answer;
use super::link::Link;
use super::outgoing::{BodyFault, Outgoing};
use super::wire::Wire;
use crate::config::{Limits, Speech, Target};

/// A benign close of an idle connection must not become an unknown outcome, so calls with a key use none that idled longer.
const IDLE_KEYED: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_secs(60);
/// How many idle connections are kept.
const MOST_IDLE: usize = 512;

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
                return Self::Caller(match fault {
                    BodyFault::TooLarge => Fault::TooLarge,
                    BodyFault::Stalled => Fault::Stalled,
                    BodyFault::Broken(_) => Fault::Broken,
                });
            }
            // The upstream's word that it has not looked at the request.
            if error.downcast_ref::<h2::Error>().and_then(h2::Error::reason)
                == Some(h2::Reason::REFUSED_STREAM)
            {
                return Self::NeverSent("the upstream refused the stream".into());
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
    limits: Limits,
    pub(crate) pool: Arc<Pool>,
}

/// The connections to an upstream, which outlive a reload.
#[derive(Default)]
pub(crate) struct Pool {
    idle: Mutex<VecDeque<Link>>,
    /// The connection that all requests share where the upstream speaks HTTP/2.
    shared: tokio::sync::Mutex<Option<http2::SendRequest<Outgoing>>>,
}

/// Whether a request is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyed {
    Yes,
    No,
}

/// A connection that was just made.
enum Made {
    One(Box<Link>),
    Many(http2::SendRequest<Outgoing>),
}

impl Upstream {
    pub(crate) fn new(
        target: Target,
        tls: Arc<rustls::ClientConfig>,
        limits: Limits,
        pool: Arc<Pool>,
    ) -> Self {
        Self { target, tls: tls.into(), limits, pool }
    }

    /// Sends a request and waits for the head of its answer. `None` as time-out waits for ever.
    pub(crate) async fn send(
        self: &Arc<Self>,
        request: Request<Outgoing>,
        keyed: Keyed,
    ) -> Result<Response<Answer>, Undelivered> {
        // Shared connections are known to be open; whether one speaks HTTP/2 is known after the first.
        // Boxed where it is rare: the memory of every request would be as large as that of the largest way.
        if let Some(sender) = self.multiplexed().await {
            match Box::pin(self.in_time(send_shared(sender, request))).await {
                Err(Undelivered::Returned(request)) => Box::pin(self.send_anew(*request)).await,
                other => other,
            }
        } else {
            let mut request = request;
            while let Some(link) = self.take_idle(keyed).await {
                match self.send_on(link, request).await {
                    // The upstream had closed it meanwhile; nothing was sent.
                    Err(Undelivered::Returned(returned)) => request = *returned,
                    other => return other,
                }
            }
            Box::pin(self.send_anew(request)).await
        }
    }

    async fn send_anew(
        self: &Arc<Self>,
        request: Request<Outgoing>,
    ) -> Result<Response<Answer>, Undelivered> {
        let sent = match self.connect().await? {
            Made::One(link) => self.send_on(*link, request).await,
            Made::Many(sender) => self.in_time(send_shared(sender, request)).await,
        };
        match sent {
            Err(Undelivered::Returned(_)) => {
                Err(Undelivered::NeverSent("the upstream closed the new connection at once".into()))
            }
            other => other,
        }
    }

    async fn send_on(
        self: &Arc<Self>,
        mut link: Link,
        mut request: Request<Outgoing>,
    ) -> Result<Response<Answer>, Undelivered> {
        let uri = request.uri().path_and_query().cloned();
        *request.uri_mut() = uri.map(http::Uri::from).unwrap_or_default();
        *request.version_mut() = http::Version::HTTP_11;
        let response = self.in_time(link.send(request)).await?;
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let answer = if switches { Answer::switching } else { Answer::on };
        Ok(response.map(|body| answer(body, link, Arc::clone(self))))
    }

    async fn in_time<T>(&self, sent: impl Future<Output = Result<T, Undelivered>>) -> Result<T, Undelivered> {
        tokio::time::timeout(self.limits.response_timeout, sent).await.unwrap_or(Err(Undelivered::Late))
    }

    async fn multiplexed(&self) -> Option<http2::SendRequest<Outgoing>> {
        if self.target.speech == Speech::Http1 {
            return None;
        }
        let mut shared = self.pool.shared.lock().await;
        if shared.as_ref().is_some_and(|sender| sender.is_closed()) {
            *shared = None;
        }
        shared.clone()
    }

    async fn take_idle(&self, keyed: Keyed) -> Option<Link> {
        let limit = if keyed == Keyed::Yes { IDLE_KEYED } else { IDLE };
        loop {
            let mut link = {
                let mut idle = self.pool.idle.lock();
                // The one that was used last is at the end; if it idled too long, so did all others.
                let newest = idle.back()?;
                if SystemClock.now().since(newest.idle_since) > limit {
                    return None;
                }
                idle.pop_back()?
            };
            if link.is_ready().await {
                return Some(link);
            }
        }
    }

    /// Takes a connection back whose answer has come whole.
    pub(crate) fn give_back(&self, mut link: Link) {
        let now = SystemClock.now();
        link.idle_since = now;
        let mut idle = self.pool.idle.lock();
        let surplus = |oldest: &Link, count| count > MOST_IDLE || now.since(oldest.idle_since) > IDLE;
        idle.push_back(link);
        while idle.front().is_some_and(|oldest| surplus(oldest, idle.len())) {
            idle.pop_front();
        }
    }

    /// Closes connections that nobody used for long.
    pub(crate) fn tidy(&self) {
        let now = SystemClock.now();
        self.pool.idle.lock().retain(|link| now.since(link.idle_since) <= IDLE);
    }

    async fn connect(&self) -> Result<Made, Undelivered> {
        let made = tokio::time::timeout(self.limits.connect_timeout, self.try_connect()).await;
        let made = made.unwrap_or_else(|_| Err("connecting took too long".into()));
        made.map_err(|why| Undelivered::NeverSent(format!("{}: {why}", self.target.authority)))
    }

    async fn try_connect(&self) -> Result<Made, String> {
        let socket = TcpStream::connect((self.target.host.as_str(), self.target.port)).await;
        let socket = socket.map_err(|error| error.to_string())?;
        // A request is written at once; waiting for more would only delay it.
        let _ = socket.set_nodelay(true);
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
            let link = Link::new(wire, SystemClock.now()).await.map_err(|error| told(&error))?;
            return Ok(Made::One(Box::new(link)));
        }
        let handshake = http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(wire)).await;
        let (sender, connection) = handshake.map_err(|error| told(&error))?;
        tokio::spawn(connection);
        *self.pool.shared.lock().await = Some(sender.clone());
        Ok(Made::Many(sender))
    }
}

async fn send_shared(
    mut sender: http2::SendRequest<Outgoing>,
    mut request: Request<Outgoing>,
) -> Result<Response<Answer>, Undelivered> {
    *request.version_mut() = http::Version::HTTP_2;
    // In HTTP/2 the target names the host.
    request.headers_mut().remove(http::header::HOST);
    if sender.ready().await.is_err() {
        return Err(Undelivered::Returned(Box::new(request)));
    }
    match sender.try_send_request(request).await {
        Ok(response) => Ok(response.map(Answer::shared)),
        Err(mut refused) => Err(match refused.take_message() {
            Some(request) => Undelivered::Returned(Box::new(request)),
            None => Undelivered::of(&refused.into_error()),
        }),
    }
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
