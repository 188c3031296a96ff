//! The bodies that go in and out of the layer, and reading them within limits.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use onlyonce_core::Clock;
use pin_project_lite::pin_project;

pin_project! {
    /// A body that is passed on as it comes, or bytes that are in memory. What the wrapped service receives.
    #[derive(Debug)]
    pub struct RequestBody<B> {
        read: Bytes,
        #[pin]
        passed: Option<B>,
    }
}

impl<B> RequestBody<B> {
    pub(crate) fn passed(body: B) -> Self {
        Self { read: Bytes::new(), passed: Some(body) }
    }

    pub(crate) fn read(bytes: Bytes) -> Self {
        Self { read: bytes, passed: None }
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes>,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        match this.passed.as_pin_mut() {
            Some(body) => body.poll_frame(cx),
            None if this.read.is_empty() => Poll::Ready(None),
            None => Poll::Ready(Some(Ok(Frame::data(std::mem::take(this.read))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.passed.as_ref().map_or(self.read.is_empty(), Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.passed.as_ref().map_or_else(|| SizeHint::with_exact(self.read.len() as u64), Body::size_hint)
    }
}

/// The body of an answer: stored or read into memory, or a stream of the wrapped service behind what was read of it.
#[derive(Debug)]
pub struct ResponseBody<B> {
    data: Pieces,
    /// Boxed, because they are rare and large.
    trailers: Option<Box<HeaderMap>>,
    /// Boxed, because a body that turns out to be a stream is moved after it was polled.
    rest: Option<Pin<Box<B>>>,
}

impl<B> ResponseBody<B> {
    pub(crate) fn passed(body: B) -> Self {
        Self { data: Pieces::default(), trailers: None, rest: Some(Box::pin(body)) }
    }

    pub(crate) fn full(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        let mut data = Pieces::default();
        data.push(bytes);
        Self { data, trailers: trailers.map(Box::new), rest: None }
    }
}

/// An answer that is in memory.
impl<B> From<Bytes> for ResponseBody<B> {
    fn from(bytes: Bytes) -> Self {
        Self::full(bytes, None)
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes>,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(bytes) = self.data.pop() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match &mut self.rest {
            Some(rest) => rest.as_mut().poll_frame(cx),
            None => Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(*trailers)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_empty()
            && self.trailers.is_none()
            && self.rest.as_ref().is_none_or(|rest| rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.data.length as u64;
        let rest = self.rest.as_ref().map_or(SizeHint::with_exact(0), |rest| rest.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}

/// The body of an answer, read to its end, or as far as the limits allowed.
pub(crate) enum Read<B> {
    Whole {
        bytes: Bytes,
        trailers: Option<HeaderMap>,
    },
    /// It is larger than the limit, or it is still open and the time is up.
    Stream(ResponseBody<B>),
}

/// Reads the body of an answer, but no more than `limit` bytes and no longer than `patience`.
pub(crate) fn read<B>(
    body: B,
    limit: usize,
    patience: Duration,
    clock: &dyn Clock,
) -> impl Future<Output = Result<Read<B>, B::Error>>
where
    B: Body<Data = Bytes>,
{
    // Not an async function: that would hold its arguments twice, in the memory of every call.
    let mut body = Box::pin(body);
    async move {
        Ok(match pull(body.as_mut(), limit, patience, clock).await? {
            Pulled::Whole { bytes, trailers } => Read::Whole { bytes, trailers },
            Pulled::TooLarge(data) | Pulled::TooSlow(data) => {
                Read::Stream(ResponseBody { data, trailers: None, rest: Some(body) })
            }
        })
    }
}

/// Reads a body of which nothing is left if it is not read whole.
#[allow(clippy::manual_async_fn, reason = "an async function would hold its arguments twice")]
pub(crate) fn read_all<B>(
    body: B,
    limit: usize,
    patience: Duration,
    clock: &dyn Clock,
) -> impl Future<Output = Result<Pulled, B::Error>>
where
    B: Body<Data = Bytes>,
{
    async move { pull(std::pin::pin!(body), limit, patience, clock).await }
}

/// What came of reading a body.
pub(crate) enum Pulled {
    Whole {
        bytes: Bytes,
        trailers: Option<HeaderMap>,
    },
    /// It is larger than the limit.
    TooLarge(Pieces),
    /// It is still open, and the time is up.
    TooSlow(Pieces),
}

#[allow(clippy::manual_async_fn, reason = "an async function would hold its arguments twice")]
fn pull<B>(
    mut body: Pin<&mut B>,
    limit: usize,
    patience: Duration,
    clock: &dyn Clock,
) -> impl Future<Output = Result<Pulled, B::Error>>
where
    B: Body<Data = Bytes>,
{
    async move {
        let (mut data, mut trailers) = (Pieces::default(), None);
        if body.size_hint().lower() > limit as u64 {
            return Ok(Pulled::TooLarge(data));
        }
        let mut time = None;
        while !body.is_end_stream() {
            let next = poll_fn(|cx| match body.as_mut().poll_frame(cx) {
                Poll::Ready(frame) => Poll::Ready(Some(frame)),
                // The clock is asked only for bodies that are not there yet, which is rare.
                Poll::Pending => {
                    time.get_or_insert_with(|| clock.sleep(patience)).as_mut().poll(cx).map(|()| None)
                }
            });
            let Some(frame) = next.await else { return Ok(Pulled::TooSlow(data)) };
            let Some(frame) = frame.transpose()? else { break };
            match frame.into_data() {
                Ok(bytes) => {
                    data.push(bytes);
                    if data.length > limit {
                        return Ok(Pulled::TooLarge(data));
                    }
                }
                // Boxed, because they are rare and large.
                Err(frame) => trailers = frame.into_trailers().ok().map(Box::new),
            }
        }
        Ok(Pulled::Whole { bytes: data.join(), trailers: trailers.map(|trailers| *trailers) })
    }
}

/// What was read of a body. Nearly always it is one piece, which needs no memory of its own.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Empty once it is taken.
    first: Bytes,
    #[allow(
        clippy::box_collection,
        reason = "nearly always there is none, and it is moved with every answer"
    )]
    more: Option<Box<VecDeque<Bytes>>>,
    length: usize,
}

impl Pieces {
    fn push(&mut self, bytes: Bytes) {
        let before = self.length;
        self.length += bytes.len();
        if before == 0 {
            self.first = bytes;
        } else if !bytes.is_empty() {
            self.more.get_or_insert_default().push_back(bytes);
        }
    }

    fn pop(&mut self) -> Option<Bytes> {
        let bytes = match &mut self.more {
            _ if !self.first.is_empty() => std::mem::take(&mut self.first),
            Some(more) => more.pop_front()?,
            None => return None,
        };
        self.length -= bytes.len();
        Some(bytes)
    }

    fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn join(mut self) -> Bytes {
        if self.more.is_none() {
            return self.first;
        }
        let mut joined = BytesMut::with_capacity(self.length);
        while let Some(bytes) = self.pop() {
            joined.extend_from_slice(&bytes);
        }
        joined.freeze()
    }
}
