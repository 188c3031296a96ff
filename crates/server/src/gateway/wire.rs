//! A connection, with or without TLS, and a watch on what its other end does.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::framing::HeadScan;

/// A socket, perhaps within TLS. The large case is boxed.
#[derive(Debug)]
pub(crate) enum Wire {
    Plain(TcpStream),
    Served(Box<tokio_rustls::server::TlsStream<TcpStream>>),
    Asked(Box<tokio_rustls::client::TlsStream<TcpStream>>),
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

/// What a caller's connection is doing. No clock is read for it: whoever watches counts how often nothing has changed.
#[derive(Debug, Default)]
pub(crate) struct Doings {
    /// Rises with everything that happens.
    changes: AtomicU32,
    /// Requests under way.
    busy: AtomicU32,
    /// A head has begun to come.
    head: AtomicBool,
    /// The other end does not take what is written.
    blocked: AtomicBool,
    /// The head that comes names a length.
    length: AtomicBool,
    /// On HTTP/2, bytes between requests are not the beginning of one.
    multiplexed: AtomicBool,
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
    /// How many things have happened, and what is waited for now.
    pub(crate) fn look(&self) -> (u32, Waiting) {
        let waiting = if self.blocked.load(ORDER) {
            Waiting::Reader
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

    /// Whether the head of the request that has just come named a length, as far as that could be seen: the head of a request that
    /// was sent before the one before it was answered is not looked at.
    pub(crate) fn takes_length(&self) -> bool {
        self.length.swap(false, ORDER)
    }

    /// A request has come whole; it is under way until the guard is gone.
    pub(crate) fn request(self: &Arc<Self>, multiplexed: bool) -> Busy {
        self.busy.fetch_add(1, ORDER);
        self.head.store(false, ORDER);
        if multiplexed {
            self.multiplexed.store(true, ORDER);
        }
        self.happened();
        Busy(Arc::clone(self))
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Doings>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, ORDER);
        self.0.happened();
    }
}

/// A wire whose doings are noted.
#[derive(Debug)]
pub(crate) struct Watched {
    wire: Wire,
    doings: Arc<Doings>,
    scan: HeadScan,
}

impl Watched {
    pub(crate) fn new(wire: Wire, doings: Arc<Doings>) -> Self {
        Self { wire, doings, scan: HeadScan::default() }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let Self { wire, doings, scan } = &mut *self;
        ready!(Pin::new(wire).poll_read(cx, buf))?;
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
        }
        Poll::Ready(Ok(()))
    }
}

impl Watched {
    fn wrote(&self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let blocked = outcome.is_pending();
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
