//! A connection that requests share: how many may be on it at a time, and when it was of use.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use onlyonce::{Clock as _, Moment, SystemClock};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::outgoing::Outgoing;
use super::wire::Wire;

type Connection = http2::Connection<TokioIo<Wire>, Outgoing, TokioExecutor>;

/// How often those who wait look whether the upstream allows more streams than before.
const LOOK: Duration = Duration::from_millis(100);

/// A connection that all requests share.
#[derive(Clone)]
pub(super) struct Multiplexed {
    pub(super) sender: http2::SendRequest<Outgoing>,
    /// When a request was sent or answered.
    pub(super) used: Moment,
    /// Tells it from the one before.
    pub(super) number: u64,
    streams: Arc<Streams>,
}

/// The streams of a connection. The HTTP library would queue a request that is one too many, and could not say later whether it
/// was sent; so none is handed to it before there is a stream for it.
struct Streams {
    /// Gone once it has ended: whoever sends then is told so.
    connection: Mutex<Option<Connection>>,
    open: AtomicUsize,
    freed: Notify,
}

/// A place for one request; given back when it is dropped.
pub(crate) struct Stream(Arc<Streams>);

impl Multiplexed {
    /// Drives the connection in a task of its own until it ends.
    pub(super) fn drive(
        sender: http2::SendRequest<Outgoing>,
        connection: Connection,
        place: OwnedSemaphorePermit,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let connection = Mutex::new(Some(connection));
        let streams = Arc::new(Streams { connection, open: AtomicUsize::new(0), freed: Notify::new() });
        let driven = Arc::clone(&streams);
        tokio::spawn(async move {
            let _place = place;
            poll_fn(|cx| driven.poll(cx)).await;
            driven.connection.lock().take();
        });
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { sender, used: SystemClock.now(), number, streams }
    }

    /// Waits until the upstream allows one more stream.
    pub(super) async fn stream(&self) -> Stream {
        loop {
            let freed = self.streams.freed.notified();
            if let Some(stream) = self.streams.take() {
                return stream;
            }
            let _ = tokio::time::timeout(LOOK, freed).await;
        }
    }
}

impl Streams {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        // Why it ended is told to those whose requests are on it.
        self.connection.lock().as_mut().map_or(Poll::Ready(()), |open| Pin::new(open).poll(cx).map(drop))
    }

    fn take(self: &Arc<Self>) -> Option<Stream> {
        let most = |open: &Connection| open.current_max_send_streams();
        let allowed = self.connection.lock().as_ref().map_or(usize::MAX, most);
        let one_more = |open| (open < allowed).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Stream(Arc::clone(self)))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.freed.notify_one();
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream(..)")
    }
}
