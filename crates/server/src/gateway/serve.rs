//! Connections: accepted up to a limit, watched for slowness, and let go in an orderly way.

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use onlyonce::http::Account;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::headers::Peer;
use super::places::{Place, Places};
use super::streams::Streams;
use super::tail::{Relays, Tail};
use super::wire::{Doings, Waiting, Watched, Wire, keep_alive};
use crate::config::{Config, Limits};

/// How often a connection is looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(500);
/// How many requests may be under way on one HTTP/2 connection.
pub(crate) const STREAMS: u32 = 200;
/// How much of their bodies may come before it is asked for: of one alone less than of all, so that one that nobody reads does not stop
/// the others.
const STREAM_WINDOW: u32 = 64 << 10;
const WINDOW: u32 = 256 << 10;
/// How long a connection that gives way may take to say so.
pub(crate) const GOODBYE: Duration = Duration::from_millis(20);
/// How long accepting pauses when the system has no more sockets.
const BREATH: Duration = Duration::from_millis(50);

/// A listener.
#[derive(Debug)]
pub(crate) struct Server<A> {
    pub(crate) listener: TcpListener,
    pub(crate) places: Arc<Places>,
    pub(crate) app: A,
}

/// What is behind a listener.
pub(crate) trait App {
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Relays + Send + 'static;
    type Service: Service<
            Request<Incoming>,
            Response = Response<Tail<Self::Body>>,
            Error = Infallible,
            Future: Send + 'static,
        > + Send
        + 'static;

    /// What a connection that has just come is served with.
    fn serving(&self) -> Arc<Serving>;

    /// What pays for all that is buffered for a connection.
    fn account(&self) -> Account;

    /// What answers the requests of a connection.
    fn service(&self, peer: Peer, doings: Arc<Doings>) -> Self::Service;
}

/// What a connection is served with; one that is open keeps what it began with.
#[derive(Debug)]
pub(crate) struct Serving {
    tls: Option<Arc<rustls::ServerConfig>>,
    limits: Limits,
}

impl Serving {
    pub(crate) fn new(config: &Config) -> Self {
        Self { tls: config.tls.clone(), limits: config.limits }
    }

    /// The same limits, without TLS.
    pub(crate) fn plain(limits: Limits) -> Self {
        Self { tls: None, limits }
    }
}

impl<A: App> Server<A> {
    /// Accepts for ever. Connections finish what they have begun when `leave` turns true; each holds a clone of it meanwhile.
    pub(crate) async fn run(self, leave: watch::Receiver<bool>) {
        loop {
            let (socket, address) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    if !is_of_one_connection(&error) {
                        tracing::error!(%error, "accepting failed");
                        tokio::time::sleep(BREATH).await;
                    }
                    continue;
                }
            };
            let doings = Doings::new(self.app.account());
            let Some(place) = self.places.take(&doings).await else { return };
            let serving = self.app.serving();
            let peer = Peer::new(address.ip(), serving.tls.is_some());
            let service = self.app.service(peer, Arc::clone(&doings));
            // Who comes after the wish to leave is refused politely, and does not hold it up.
            let leave = (!*leave.borrow()).then(|| leave.clone());
            tokio::spawn(Connection { doings, serving, leave }.serve(socket, place, service));
        }
    }
}

fn builder(limits: &Limits, streams: Streams) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(streams);
    // The time of heads is watched outside, where idle connections can be told from slow ones. Not `pipeline_flush`: with it, the last
    // answer is lost where bytes follow the last request.
    builder.http1().header_read_timeout(None).max_buf_size(limits.max_head);
    let head = u32::try_from(limits.max_head).unwrap_or(u32::MAX);
    builder
        .http2()
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(head)
        .initial_connection_window_size(WINDOW)
        .initial_stream_window_size(STREAM_WINDOW);
    builder
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

struct Connection {
    doings: Arc<Doings>,
    serving: Arc<Serving>,
    leave: Option<watch::Receiver<bool>>,
}

impl Connection {
    async fn serve<S, B>(mut self, socket: TcpStream, place: Place, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<Tail<B>>, Error = Infallible>,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Relays + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let _ = socket.set_nodelay(true);
        keep_alive(&socket);
        let Some(wire) = self.handshake(socket).await else { return };
        let (doings, limits) = (Arc::clone(&self.doings), self.serving.limits);
        let io = TokioIo::new(Watched::new(wire, Arc::clone(&doings), place));
        let streams = Streams { doings: Arc::clone(&doings), timeout: limits.body_timeout };
        let builder = builder(&limits, streams);
        let serving = builder.serve_connection_with_upgrades(io, service);
        tokio::pin!(serving);
        let watching = watch_for_slowness(&doings, limits);
        tokio::pin!(watching);
        let mut eviction = doings.account.eviction();
        let mut leaving = self.leave.is_none();
        loop {
            tokio::select! {
                biased;
                // What the connection ended with is the caller's business.
                _ = serving.as_mut() => return,
                verdict = watching.as_mut() => match verdict {
                    Slow::Idle if !leaving => {
                        leaving = true;
                        serving.as_mut().graceful_shutdown();
                        watching.set(watch_for_slowness(&doings, limits));
                    }
                    _ => return,
                },
                () = asked_to_leave(&mut self.leave), if !leaving => {
                    leaving = true;
                    serving.as_mut().graceful_shutdown();
                }
                () = doings.asked_to_leave() => {
                    leaving = true;
                    serving.as_mut().graceful_shutdown();
                    // A request may have come in that moment; it is answered first.
                    let said = tokio::time::timeout(GOODBYE, serving.as_mut()).await;
                    if said.is_ok() || !doings.has_requests() || doings.is_half_closed() {
                        return;
                    }
                }
                () = poll_fn(|cx| eviction.poll(cx)) => {
                    eviction = doings.account.eviction();
                    // Bodies that are read give way by themselves, and so do the streams of HTTP/2.
                    if doings.look().1 == Waiting::Reader {
                        return;
                    }
                }
            }
        }
    }

    async fn handshake(&self, socket: TcpStream) -> Option<Wire> {
        let Serving { tls, limits } = &*self.serving;
        let Some(tls) = tls.clone().map(TlsAcceptor::from) else { return Some(Wire::Plain(socket)) };
        // Nobody would miss it yet.
        self.doings.note_quiet(1);
        tokio::select! {
            accepted = tokio::time::timeout(limits.header_timeout, tls.accept(socket)) => {
                accepted.ok()?.ok().map(|stream| Wire::Served(Box::new(stream)))
            }
            () = self.doings.asked_to_leave() => None,
        }
    }
}

async fn asked_to_leave(leave: &mut Option<watch::Receiver<bool>>) {
    match leave {
        // The sender is gone only together with the process.
        Some(leave) => drop(leave.wait_for(|leave| *leave).await),
        None => std::future::pending().await,
    }
}

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slow {
    Idle,
    Head,
    Reader,
}

/// Ends when nothing has happened for too long.
pub(crate) async fn watch_for_slowness(doings: &Doings, limits: Limits) -> Slow {
    let mut seen = doings.look();
    let mut looks = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        let now = doings.look();
        looks = if now == seen { looks + 1 } else { 0 };
        doings.note_quiet(looks);
        seen = now;
        let (limit, verdict) = match now.1 {
            Waiting::Head => (limits.header_timeout, Slow::Head),
            Waiting::Idle => (limits.idle_timeout, Slow::Idle),
            Waiting::Reader => (limits.body_timeout, Slow::Reader),
            Waiting::Nothing => continue,
        };
        // It was asked to give way in a moment in which its reader seemed to read.
        if verdict == Slow::Reader && doings.account.owes() {
            return verdict;
        }
        if LOOK * looks >= limit {
            return verdict;
        }
    }
}
