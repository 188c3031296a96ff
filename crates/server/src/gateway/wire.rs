//! A connection, with or without TLS, and a watch on what its other end does.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use onlyonce::http::{Account, Reservation};
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::framing::HeadScan;
use super::places::Place;
use super::tail::Unread;

/// A socket, perhaps within TLS. The large case is boxed.
#[derive(Debug)]
pub(crate) enum Wire {
    Plain(TcpStream),
    Served(Box<tokio_rustls::server::TlsStream<TcpStream>>),
    Asked(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

impl Wire {
    /// What the system knows to be wrong with it: behind its end, reading does not tell.
    fn failed(&self) -> Option<io::Error> {
        let socket = match self {
            Self::Plain(socket) => socket,
            Self::Served(stream) => stream.get_ref().0,
            Self::Asked(stream) => stream.get_ref().0,
        };
        socket.take_error().unwrap_or_else(Some)
    }
}

macro_rules! either {
    ($wire:expr, $io:ident => $do:expr) => {
        match $wire {
            Wire::Plain($io) => {
                let $io = Pin::new($io);
                $do
            }
            Wire::Served($io) => {
                let $io = Pin::new(&mut **$io);
                $do
            }
            Wire::Asked($io) => {
                let $io = Pin::new(&mut **$io);
                $do
            }
        }
    };
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), io => io.poll_read(cx, buf))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), io => io.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), io => io.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(io) => io.is_write_vectored(),
            Self::Served(io) => io.is_write_vectored(),
            Self::Asked(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), io => io.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), io => io.poll_shutdown(cx))
    }
}

/// After how long without a word the system asks whether the other end is still there.
const ALIVE: Duration = Duration::from_secs(60);

/// Lets the system notice that the other end is gone without a word, where nothing is sent for long.
pub(crate) fn keep_alive(socket: &TcpStream) {
    let keepalive = TcpKeepalive::new().with_time(ALIVE).with_interval(ALIVE / 6);
    // Without it a dead connection is noticed later.
    let _ = SockRef::from(socket).set_tcp_keepalive(&keepalive);
}

/// A wire that takes one of the sockets that there are.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) wire: Wire,
    pub(crate) _place: OwnedSemaphorePermit,
}

impl AsyncRead for Placed {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().wire).poll_read(cx, buf)
    }
}

impl AsyncWrite for Placed {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().wire).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().wire).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().wire).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().wire).poll_shutdown(cx)
    }
}

/// What a caller's connection is doing. No clock is read for it: whoever watches counts how often nothing has changed.
#[derive(Debug)]
pub(crate) struct Doings {
    /// What pays for all that is buffered for it.
    pub(crate) account: Account,
    /// Rises with everything that happens.
    changes: AtomicU32,
    /// Requests under way.
    busy: AtomicU32,
    /// Calls that were not answered yet, also those whose caller has left.
    calls: AtomicU32,
    /// A head has begun to come.
    head: AtomicBool,
    /// The other end does not take what is written.
    blocked: AtomicBool,
    /// The head that comes names a length.
    length: AtomicBool,
    /// An answer broke off that only the end of the connection would have ended.
    cut: AtomicBool,
    /// On HTTP/2, bytes between requests are not the beginning of one.
    multiplexed: AtomicBool,
    /// It speaks another protocol, and only whether bytes move is seen.
    tunnel: AtomicBool,
    /// How often whoever watches has seen no change.
    quiet: AtomicU32,
    /// It was asked to leave, because others wait for its place.
    leaving: AtomicBool,
    leave: Notify,
    /// The stream of the request that has just come.
    newest: Mutex<Option<Arc<Unread>>>,
    /// The request under way is the last of its connection, as its caller said.
    last: AtomicBool,
    /// Nothing more comes behind the last request.
    ended: AtomicBool,
    /// Who waits for more of its body.
    body: AtomicWaker,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// For the rest of a head.
    Head,
    /// For the next request.
    Idle,
    /// For the other end to read.
    Reader,
    /// For the upstream, or the rest of a body: others have an eye on that.
    Nothing,
}

const ORDER: Ordering = Ordering::Relaxed;

impl Doings {
    pub(crate) fn new(account: Account) -> Arc<Self> {
        Arc::new(Self {
            account,
            changes: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            head: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
            length: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            multiplexed: AtomicBool::new(false),
            tunnel: AtomicBool::new(false),
            quiet: AtomicU32::new(0),
            leaving: AtomicBool::new(false),
            leave: Notify::new(),
            newest: Mutex::new(None),
            last: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            body: AtomicWaker::new(),
        })
    }

    /// How many things have happened, and what is waited for now.
    pub(crate) fn look(&self) -> (u32, Waiting) {
        let waiting = if self.blocked.load(ORDER) {
            Waiting::Reader
        } else if self.tunnel.load(ORDER) {
            Waiting::Idle
        } else if self.busy.load(ORDER) > 0 {
            Waiting::Nothing
        } else if self.head.load(ORDER) {
            Waiting::Head
        } else {
            Waiting::Idle
        };
        (self.changes.load(ORDER), waiting)
    }

    fn happened(&self) {
        self.changes.fetch_add(1, ORDER);
    }

    /// Another protocol is spoken from now on.
    pub(crate) fn becomes_tunnel(&self) {
        self.tunnel.store(true, ORDER);
        self.happened();
    }

    pub(crate) fn note_quiet(&self, looks: u32) {
        self.quiet.store(looks, ORDER);
    }

    pub(crate) fn quiet_looks(&self) -> u32 {
        self.quiet.load(ORDER)
    }

    /// Whether nobody would miss it: it has been without a request, or without its caller, for a while, and was not asked to leave before.
    pub(crate) fn may_leave(&self) -> bool {
        let without_request = matches!(self.look().1, Waiting::Idle | Waiting::Head);
        let dispensable = self.is_half_closed() || without_request && !self.tunnel.load(ORDER);
        dispensable && self.quiet_looks() > 0 && !self.leaving.load(ORDER)
    }

    /// Whether its caller has closed its sending half behind its last request: most that do so have left.
    pub(crate) fn is_half_closed(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    pub(crate) fn ask_to_leave(&self) {
        self.leaving.store(true, ORDER);
        self.leave.notify_one();
    }

    /// Ends when it is asked to leave.
    pub(crate) async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }

    pub(crate) fn has_requests(&self) -> bool {
        self.busy.load(ORDER) > 0
    }

    /// How many calls of it are not answered yet.
    pub(crate) fn calls(&self) -> u32 {
        self.calls.load(ORDER)
    }

    pub(crate) fn hand_over_stream(&self, unread: Arc<Unread>) {
        *self.newest.lock() = Some(unread);
    }

    pub(crate) fn take_stream(&self) -> Option<Arc<Unread>> {
        self.newest.lock().take()
    }

    /// Whether the head of the request that has just come named a length, as far as that could be seen: the head of a request that
    /// was sent before the one before it was answered is not looked at.
    pub(crate) fn takes_length(&self) -> bool {
        self.length.swap(false, ORDER)
    }

    /// Whether the request that has just come is the last, as its caller says. Who said so may close its sending half behind it, and waits
    /// for the answer nevertheless; of all others that is the sign that they have left.
    pub(crate) fn note_last(&self, is_last: bool) {
        self.last.store(is_last, ORDER);
    }

    /// Nothing more comes. Whether that is a caller who still waits.
    fn ends(&self) -> bool {
        let waits = self.last.load(ORDER) && self.busy.load(ORDER) > 0 && !self.multiplexed.load(ORDER);
        if waits && !self.ended.swap(true, Ordering::SeqCst) {
            self.body.wake();
        }
        waits
    }

    /// A request has come whole; it is under way until the guard is gone.
    pub(crate) fn request(self: &Arc<Self>, multiplexed: bool, memory: Option<HeadMemory>) -> Busy {
        self.busy.fetch_add(1, ORDER);
        self.head.store(false, ORDER);
        if multiplexed {
            self.multiplexed.store(true, ORDER);
        }
        self.happened();
        Busy { doings: Arc::clone(self), memory }
    }
}

/// What a request takes, whatever it is. It can be given up until the request may run, or is relayed; then it is held until there is an
/// answer, whether somebody waits for it or not.
#[derive(Debug, Clone)]
pub(crate) struct HeadMemory(Arc<Held>);

#[derive(Debug)]
struct Held {
    reserved: Mutex<Reservation>,
    doings: Arc<Doings>,
}

impl HeadMemory {
    pub(crate) fn new(reserved: Reservation, doings: Arc<Doings>) -> Self {
        doings.calls.fetch_add(1, ORDER);
        Self(Arc::new(Held { reserved: Mutex::new(reserved), doings }))
    }

    pub(crate) fn keep(&self) {
        self.0.reserved.lock().keep();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.doings.calls.fetch_sub(1, ORDER);
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Busy {
    doings: Arc<Doings>,
    memory: Option<HeadMemory>,
}

impl Busy {
    /// The request has come whole: nobody waits for more of it, so it does not give way.
    pub(crate) fn keep_memory(&self) {
        self.memory.iter().for_each(HeadMemory::keep);
    }

    /// The head of the request is gone.
    pub(crate) fn give_back_memory(&mut self) {
        self.memory = None;
    }

    /// More of its body is waited for; whether none will come, because the caller has closed its sending half.
    pub(crate) fn waits_for_body(&self, cx: &mut Context<'_>) -> bool {
        // There a stream ends by itself, and one waker would not do for all of them.
        if self.doings.multiplexed.load(ORDER) {
            return false;
        }
        self.doings.body.register(cx.waker());
        self.doings.is_half_closed()
    }

    /// The connection must not end as if the answer were whole.
    pub(crate) fn cut(&self) {
        self.doings.cut.store(true, ORDER);
    }
}

/// As long as one of them is there.
impl Clone for Busy {
    fn clone(&self) -> Self {
        self.doings.busy.fetch_add(1, ORDER);
        Self { doings: Arc::clone(&self.doings), memory: self.memory.clone() }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.doings.busy.fetch_sub(1, ORDER);
        self.doings.happened();
    }
}

/// A wire whose doings are noted.
#[derive(Debug)]
pub(crate) struct Watched {
    wire: Wire,
    doings: Arc<Doings>,
    scan: HeadScan,
    _place: Place,
}

impl Watched {
    pub(crate) fn new(wire: Wire, doings: Arc<Doings>, place: Place) -> Self {
        Self { wire, doings, scan: HeadScan::default(), _place: place }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A reset instead of an end. Within TLS an end without a word is enough.
        if let (Wire::Plain(socket), true) = (&self.wire, self.doings.cut.load(ORDER)) {
            let _ = socket.set_zero_linger();
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let Self { wire, doings, scan, .. } = &mut *self;
        ready!(Pin::new(&mut *wire).poll_read(cx, buf))?;
        if doings.tunnel.load(ORDER) {
            doings.happened();
            return Poll::Ready(Ok(()));
        }
        if buf.filled().len() == before && doings.ends() {
            // Nobody wakes the task for this: it is polled for the answer, and now and then.
            return wire.failed().map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
        }
        let between = doings.busy.load(ORDER) == 0 && !doings.multiplexed.load(ORDER);
        let come = &buf.filled()[before..];
        if between && !come.is_empty() {
            // The head's own time runs from its first byte: later ones do not prolong it.
            if !doings.head.swap(true, ORDER) {
                *scan = HeadScan::default();
                doings.happened();
            }
            scan.take(come);
            doings.length.store(scan.found, ORDER);
            if scan.is_http2 {
                doings.multiplexed.store(true, ORDER);
                doings.head.store(false, ORDER);
                doings.happened();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Watched {
    fn wrote(&self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let blocked = outcome.is_pending();
        // Who has closed its sending half and takes its answer is there.
        if !blocked && (self.doings.tunnel.load(ORDER) || self.doings.is_half_closed()) {
            self.doings.happened();
        }
        if blocked || self.doings.blocked.load(ORDER) {
            self.doings.blocked.store(blocked, ORDER);
            if !blocked {
                self.doings.happened();
            }
        }
        outcome
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.wire).poll_write(cx, buf);
        self.wrote(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.wire).poll_write_vectored(cx, bufs);
        self.wrote(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }
}
