//! The body of an answer on its way to the caller, in pieces, so that what waits for its reader is little and known.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Body, Frame, SizeHint};
use onlyonce::http::{Account, Reservation, ResponseBody};
use parking_lot::Mutex;
use pin_project_lite::pin_project;

use super::wire::Busy;

/// The most that waits for the reader of a stream. A reader of HTTP/2 that takes less in `body_timeout` does not read.
const PIECE: usize = 16 << 10;
/// The same on HTTP/1.1, where every byte that is taken is seen.
const PIECE_ALONE: usize = 64 << 10;
/// What is held beside a piece that is relayed: in buffers of the connection to the upstream.
const BEHIND: usize = 128 << 10;

/// What was given out of an answer and is not written yet. The request is under way as long as this is there.
#[derive(Debug)]
pub(crate) struct Unread {
    pieces: AtomicU32,
    /// How many pieces were written.
    written: AtomicU32,
    waker: AtomicWaker,
    /// What a relayed piece, and what is behind it, takes in memory.
    memory: Mutex<Option<Reservation>>,
    account: Account,
    multiplexed: bool,
    busy: Busy,
}

impl Unread {
    pub(crate) fn new(busy: Busy, account: Account, multiplexed: bool) -> Arc<Self> {
        let (pieces, written) = (AtomicU32::new(0), AtomicU32::new(0));
        let (waker, memory) = (AtomicWaker::new(), Mutex::new(None));
        Arc::new(Self { pieces, written, waker, memory, account, multiplexed, busy })
    }

    /// Whether the reader is waited for, and how many pieces it has taken so far.
    pub(crate) fn look(&self) -> (bool, u32) {
        (self.pieces.load(Ordering::SeqCst) > 0, self.written.load(Ordering::SeqCst))
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    fn give_out(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        self.pieces.fetch_add(1, Ordering::SeqCst);
        Bytes::from_owner(Piece { bytes, unread: Arc::clone(self) })
    }
}

/// A piece of an answer, until it is written.
struct Piece {
    bytes: Bytes,
    unread: Arc<Unread>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.unread.written.fetch_add(1, Ordering::SeqCst);
        self.unread.pieces.fetch_sub(1, Ordering::SeqCst);
        self.unread.waker.wake();
    }
}

/// A body that comes from elsewhere while it is sent has something behind each piece.
pub(crate) trait Relays {
    fn is_relayed(&self) -> bool;
}

impl<B> Relays for ResponseBody<B> {
    fn is_relayed(&self) -> bool {
        self.is_passed_on()
    }
}

/// Answers of the admin API are made here.
impl Relays for axum::body::Body {
    fn is_relayed(&self) -> bool {
        false
    }
}

pin_project! {
    /// The body of an answer; until it is written, the request is under way.
    pub(crate) struct Tail<B> {
        #[pin]
        body: B,
        // What was taken of the body and not given out yet.
        rest: Bytes,
        unread: Arc<Unread>,
        ends_by_close: bool,
    }
}

impl<B> Tail<B> {
    /// If only the end of the connection ends it, that must not look like an end where it is cut off.
    pub(crate) fn new(body: B, unread: Arc<Unread>, ends_by_close: bool) -> Self {
        Self { body, rest: Bytes::new(), unread, ends_by_close }
    }
}

/// An answer that was relayed is given up, because there is no memory for it.
#[derive(Debug)]
struct GaveWay;

impl fmt::Display for GaveWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("limits.memory is used up, and this connection holds the most of it")
    }
}

impl Error for GaveWay {}

type Failed = Box<dyn Error + Send + Sync>;

impl<B> Body for Tail<B>
where
    B: Body<Data = Bytes> + Relays,
    B::Error: Into<Failed>,
{
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        let polled = self.as_mut().poll_piece(cx);
        if let (Poll::Ready(Some(Err(_))), true) = (&polled, self.ends_by_close) {
            self.unread.busy.cut();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let written = !self.unread.multiplexed || !self.unread.look().0;
        written && self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Tail<B>
where
    B: Body<Data = Bytes> + Relays,
    B::Error: Into<Failed>,
{
    fn poll_piece(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        let this = self.project();
        if this.unread.multiplexed {
            // One after the other, the end of the stream too: a task that has nothing more to give out could not be stopped.
            this.unread.waker.register(cx.waker());
            if this.unread.look().0 {
                return Poll::Pending;
            }
        }
        if this.rest.is_empty() {
            *this.unread.memory.lock() = None;
            let relayed = this.body.is_relayed();
            let Some(frame) = ready!(this.body.poll_frame(cx)) else { return Poll::Ready(None) };
            *this.rest = match frame.map(Frame::into_data) {
                Ok(Ok(data)) => data,
                Ok(Err(other)) => return Poll::Ready(Some(Ok(other))),
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            };
            if relayed {
                let Some(reserved) = this.unread.account.take(this.rest.len() + BEHIND) else {
                    tracing::debug!("an answer was cut off: {GaveWay}");
                    return Poll::Ready(Some(Err(GaveWay.into())));
                };
                *this.unread.memory.lock() = Some(reserved);
            }
        }
        let most = if this.unread.multiplexed { PIECE } else { PIECE_ALONE };
        let piece = this.rest.split_to(this.rest.len().min(most));
        Poll::Ready(Some(Ok(Frame::data(this.unread.give_out(piece)))))
    }
}
