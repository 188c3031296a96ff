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

/// A body read to its end, or as far as the limits allowed.
pub(crate) enum Read<B> {
    Whole {
        bytes: Bytes,
        trailers: Option<HeaderMap>,
    },
    /// It is larger than the limit.
    TooLarge(ResponseBody<B>),
    /// It is still open, and the time is up.
    TooSlow(ResponseBody<B>),
}

/// Reads a body, but no more than `limit` bytes and no longer than `patience`.
pub(crate) async fn read<B>(
    body: B,
    limit: usize,
    patience: Duration,
    clock: &dyn Clock,
) -> Result<Read<B>, B::Error>
where
    B: Body<Data = Bytes>,
{
    let mut read = ResponseBody::passed(body);
    if read.size_hint().lower() > limit as u64 {
        return Ok(Read::TooLarge(read));
    }
    let mut time = None;
    let (mut data, mut trailers) = (Pieces::default(), None);
    loop {
        let next = poll_fn(|cx| match Pin::new(&mut read).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Some(frame)),
            // The clock is asked only for bodies that are not there yet, which is rare.
            Poll::Pending => {
                time.get_or_insert_with(|| clock.sleep(patience)).as_mut().poll(cx).map(|()| None)
            }
        });
        let Some(frame) = next.await else {
            read.data = data;
            return Ok(Read::TooSlow(read));
        };
        let Some(frame) = frame.transpose()? else { break };
        match frame.into_data() {
            Ok(bytes) => {
                data.push(bytes);
                if data.length > limit {
                    read.data = data;
                    return Ok(Read::TooLarge(read));
                }
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok(Read::Whole { bytes: data.join(), trailers })
}

/// What was read of a body. Nearly always it is one piece, which needs no memory of its own.
#[derive(Debug, Default)]
struct Pieces {
    first: Option<Bytes>,
    more: VecDeque<Bytes>,
    length: usize,
}

impl Pieces {
    fn push(&mut self, bytes: Bytes) {
        self.length += bytes.len();
        match &self.first {
            _ if bytes.is_empty() => {}
            None if self.more.is_empty() => self.first = Some(bytes),
            _ => self.more.push_back(bytes),
        }
    }

    fn pop(&mut self) -> Option<Bytes> {
        let bytes = self.first.take().or_else(|| self.more.pop_front())?;
        self.length -= bytes.len();
        Some(bytes)
    }

    fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn join(mut self) -> Bytes {
        if self.more.is_empty() {
            return self.first.take().unwrap_or_default();
        }
        let mut joined = BytesMut::with_capacity(self.length);
        while let Some(bytes) = self.pop() {
            joined.extend_from_slice(&bytes);
        }
        joined.freeze()
    }
}
