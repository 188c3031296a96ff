//! Connections of callers: accepted up to a limit, watched for slowness, and let go in an orderly way.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::front::{Front, Gate};
use super::headers::Peer;
use super::wire::{Doings, Waiting, Watched, Wire};
use crate::config::{Config, Limits};

/// How often a connection is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How many requests may be under way on one HTTP/2 connection.
const STREAMS: u32 = 200;
/// How long accepting pauses when the system has no more sockets.
const BREATH: Duration = Duration::from_millis(50);

/// The listener of callers.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) listener: TcpListener,
    pub(crate) gate: Arc<Gate>,
    /// How many connections may be open.
    pub(crate) connections: usize,
}

/// What a connection is served with; one that is open keeps what it began with.
#[derive(Debug)]
pub(crate) struct Serving {
    tls: Option<Arc<rustls::ServerConfig>>,
    limits: Limits,
    builder: auto::Builder<TokioExecutor>,
}

impl Serving {
    pub(crate) fn new(config: &Config) -> Self {
        Self { tls: config.tls.clone(), limits: config.limits, builder: builder(&config.limits) }
    }
}

impl Server {
    /// Accepts for ever. Connections finish what they have begun when `leave` turns true; each holds a clone of it meanwhile.
    pub(crate) async fn run(self, leave: watch::Receiver<bool>) {
        let room = Arc::new(Semaphore::new(self.connections));
        loop {
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
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
            let connection = Connection {
                gate: Arc::clone(&self.gate),
                serving: Arc::clone(&self.gate.live().serving),
                // Who comes after the wish to leave is refused politely, and does not hold it up.
                leave: (!*leave.borrow()).then(|| leave.clone()),
            };
            tokio::spawn(async move {
                connection.serve(socket, address).await;
                drop(place);
            });
        }
    }
}

fn builder(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // The time of heads is watched outside, where idle connections can be told from slow ones. Not `pipeline_flush`: with it, the last
    // answer is lost where bytes follow the last request.
    builder.http1().header_read_timeout(None).max_buf_size(limits.max_head);
    let head = u32::try_from(limits.max_head).unwrap_or(u32::MAX);
    builder.http2().max_concurrent_streams(STREAMS).max_header_list_size(head);
    builder
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

struct Connection {
    gate: Arc<Gate>,
    serving: Arc<Serving>,
    leave: Option<watch::Receiver<bool>>,
}

impl Connection {
    async fn serve(mut self, socket: TcpStream, address: SocketAddr) {
        let _ = socket.set_nodelay(true);
        let peer = Peer::new(address.ip(), self.serving.tls.is_some());
        let Some(wire) = self.handshake(socket).await else { return };
        let doings = Arc::new(Doings::default());
        let front = Front { gate: Arc::clone(&self.gate), peer, doings: Arc::clone(&doings) };
        let io = TokioIo::new(Watched::new(wire, Arc::clone(&doings)));
        let Serving { limits, builder, .. } = &*Arc::clone(&self.serving);
        let serving = builder.serve_connection_with_upgrades(io, front);
        tokio::pin!(serving);
        let watching = watch_for_slowness(&doings, *limits);
        tokio::pin!(watching);
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
                        watching.set(watch_for_slowness(&doings, *limits));
                    }
                    _ => return,
                },
                () = asked_to_leave(&mut self.leave), if !leaving => {
                    leaving = true;
                    serving.as_mut().graceful_shutdown();
                }
            }
        }
    }

    async fn handshake(&self, socket: TcpStream) -> Option<Wire> {
        let Serving { tls, limits, .. } = &*self.serving;
        let Some(tls) = tls.clone().map(TlsAcceptor::from) else { return Some(Wire::Plain(socket)) };
        let accepted = tokio::time::timeout(limits.header_timeout, tls.accept(socket)).await;
        accepted.ok()?.ok().map(|stream| Wire::Served(Box::new(stream)))
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
enum Slow {
    Idle,
    Head,
    Reader,
}

/// Ends when nothing has happened for too long.
async fn watch_for_slowness(doings: &Doings, limits: Limits) -> Slow {
    let mut seen = doings.look();
    let mut looks = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        let now = doings.look();
        looks = if now == seen { looks + 1 } else { 0 };
        seen = now;
        let (limit, verdict) = match now.1 {
            Waiting::Head => (limits.header_timeout, Slow::Head),
            Waiting::Idle => (limits.idle_timeout, Slow::Idle),
            Waiting::Reader => (limits.body_timeout, Slow::Reader),
            Waiting::Nothing => continue,
        };
        if LOOK * looks >= limit {
            return verdict;
        }
    }
}
