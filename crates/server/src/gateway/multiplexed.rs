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

/// How often it is looked whether the upstream has said how many streams it allows: soon at first, and then less often.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LOOK: Duration = Duration::from_millis(50);

/// A connection that all requests share.
#[derive(Clone)]
pub(super) struct Multiplexed {
    pub(super) sender: http2::SendRequest<Outgoing>,
    /// When a request was sent or answered.
    pub(super) used: Moment,
    /// Tells it from the others.
    pub(super) number: u64,
    streams: Arc<Streams>,
}

/// The streams of a connection. The HTTP library would queue a request that is one too many, and could not say later whether it
/// was sent; so none is handed to it before there is a stream for it.
struct Streams {
    /// Gone once it has ended: whoever sends then is told so.
    connection: Mutex<Option<Connection>>,
    open: AtomicUsize,
    /// Told when one of them is free again.
    freed: Arc<Notify>,
}

/// A place for one request; given back when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Stream(#[expect(dead_code, reason = "it is there to be dropped")] Arc<Held>);

struct Held(Arc<Streams>);

impl Multiplexed {
    /// Drives the connection in a task of its own until it ends. It allows no stream before the upstream has said how many.
    pub(super) fn drive(
        sender: http2::SendRequest<Outgoing>,
        connection: Connection,
        place: OwnedSemaphorePermit,
        freed: Arc<Notify>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let connection = Mutex::new(Some(connection));
        let streams = Arc::new(Streams { connection, open: AtomicUsize::new(0), freed });
        let driven = Arc::clone(&streams);
        tokio::spawn(async move {
            let _place = place;
            poll_fn(|cx| driven.poll(cx)).await;
            driven.connection.lock().take();
        });
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { sender, used: SystemClock.now(), number, streams }
    }

    /// Waits until the upstream has said how many streams it allows, and that is not none.
    pub(super) async fn settled(&self) {
        let mut pause = FIRST_LOOK;
        while self.streams.allowed() == 0 {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK);
        }
    }

    /// One more stream, if there is one.
    pub(super) fn take(&self) -> Option<Stream> {
        self.streams.take()
    }

    /// Whether there is a request on it.
    pub(super) fn is_in_use(&self) -> bool {
        self.streams.open.load(Ordering::Relaxed) > 0
    }
}

impl Streams {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        // Why it ended is told to those whose requests are on it.
        self.connection.lock().as_mut().map_or(Poll::Ready(()), |open| Pin::new(open).poll(cx).map(drop))
    }

    fn allowed(&self) -> usize {
        let most = |open: &Connection| open.current_max_send_streams();
        self.connection.lock().as_ref().map_or(usize::MAX, most)
    }

    fn take(self: &Arc<Self>) -> Option<Stream> {
        let allowed = self.allowed();
        let one_more = |open| (open < allowed).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Stream(Arc::new(Held(Arc::clone(self)))))
    }
}

impl Drop for Held {
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
