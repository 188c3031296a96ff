//! The bodies that go in and out of the layer, and reading them within limits.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use onlyonce_core::Clock;
use pin_project_lite::pin_project;

use crate::memory::{BodyMemory, NoRoom, Reservation};
use crate::unsettled::Unsettled;
use crate::whole::{BodyError, BoxError, WholeBody};

/// A body that was read to its end.
#[derive(Debug, Default)]
pub(crate) struct InMemory {
    pub(crate) bytes: Bytes,
    /// Boxed, because they are rare and large.
    pub(crate) trailers: Option<Box<HeaderMap>>,
}

pin_project! {
    /// A body that is passed on as it comes, or one that is in memory. What the wrapped service receives.
    #[derive(Debug)]
    pub struct RequestBody<B> {
        read: InMemory,
        #[pin]
        passed: Option<B>,
    }
}

impl<B> RequestBody<B> {
    pub(crate) fn passed(body: B) -> Self {
        Self { read: InMemory::default(), passed: Some(body) }
    }

    pub(crate) fn read(read: InMemory) -> Self {
        Self { read, passed: None }
    }

    /// Whether it comes while it is read, and is not in memory.
    #[must_use]
    pub fn is_passed_on(&self) -> bool {
        self.passed.is_some()
    }

    /// The body that is passed on, unless it is in memory.
    pub fn passed_mut(&mut self) -> Option<&mut B> {
        self.passed.as_mut()
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
        let read = this.read;
        match this.passed.as_pin_mut() {
            Some(body) => body.poll_frame(cx),
            None if read.bytes.is_empty() => {
                Poll::Ready(read.trailers.take().map(|trailers| Ok(Frame::trailers(*trailers))))
            }
            None => Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut read.bytes))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        let read = || self.read.bytes.is_empty() && self.read.trailers.is_none();
        self.passed.as_ref().map_or_else(read, Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let read = || size_hint(self.read.bytes.len(), SizeHint::with_exact(0), self.read.trailers.is_some());
        self.passed.as_ref().map_or_else(read, Body::size_hint)
    }
}

/// The size of what is there and what follows. A body with trailers has no exact size: in HTTP/1.1 there would be no place for them.
pub(crate) fn size_hint(there: usize, rest: SizeHint, with_trailers: bool) -> SizeHint {
    let mut hint = SizeHint::new();
    hint.set_lower(rest.lower().saturating_add(there as u64));
    if let Some(upper) = rest.upper().filter(|_| !with_trailers) {
        hint.set_upper(upper.saturating_add(there as u64));
    }
    hint
}

/// The body of an answer: stored or read into memory, or a stream of the wrapped service behind what was read of it.
#[derive(Debug)]
pub struct ResponseBody<B> {
    data: Pieces,
    /// Boxed, because they are rare and large.
    trailers: Option<Box<HeaderMap>>,
    /// Boxed, because a body that turns out to be a stream is moved after it was polled.
    rest: Option<Pin<Box<WholeBody<B>>>>,
    /// The call that ends when this does.
    call: Option<Box<Unsettled<B>>>,
    /// What the data takes in memory, until all of it is given out.
    reserved: Option<Reservation>,
}

impl<B> ResponseBody<B> {
    /// A body of no call.
    pub(crate) fn passed(body: B) -> Self {
        Self::stream(Pieces::default(), Box::pin(WholeBody::unchecked(body)))
    }

    pub(crate) fn stream(data: Pieces, rest: Pin<Box<WholeBody<B>>>) -> Self {
        Self { data, trailers: None, rest: Some(rest), call: None, reserved: None }
    }

    pub(crate) fn full(body: InMemory) -> Self {
        let mut data = Pieces::default();
        data.push(body.bytes);
        Self { data, trailers: body.trailers, rest: None, call: None, reserved: None }
    }

    /// The same, with what it takes in memory.
    pub(crate) fn holding(mut self, reserved: Reservation) -> Self {
        self.reserved = Some(reserved);
        self
    }

    /// Whether it may wait for its reader in memory.
    pub(crate) fn may_wait(&self) -> bool {
        self.reserved.as_ref().is_none_or(Reservation::may_wait)
    }

    /// From now on it waits for nobody but its reader.
    pub(crate) fn for_reader(&mut self) {
        self.reserved.iter_mut().for_each(Reservation::for_reader);
    }

    /// The same, and a call ends when it does.
    pub(crate) fn ending(mut self, call: Unsettled<B>) -> Self {
        self.call = Some(Box::new(call));
        self
    }
}

impl<B> ResponseBody<B> {
    /// Whether what is left comes from the wrapped service while it is read, and is not in memory.
    #[must_use]
    pub fn is_passed_on(&self) -> bool {
        self.data.is_empty() && self.rest.is_some()
    }
}

/// An answer that is in memory.
impl<B> From<Bytes> for ResponseBody<B> {
    fn from(bytes: Bytes) -> Self {
        Self::full(InMemory { bytes, trailers: None })
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { data, trailers, rest, call, reserved } = &mut *self;
        if let (Some(open), Some(rest)) = (call.as_mut(), rest.as_mut()) {
            let frame = ready!(open.poll_frame(data, rest.as_mut(), cx));
            if data.is_empty() {
                *reserved = None;
            }
            if open.has_ended() {
                *call = None;
            }
            return Poll::Ready(frame);
        }
        if let Some(bytes) = data.pop() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        *reserved = None;
        match rest {
            Some(rest) => rest.as_mut().poll_frame(cx),
            None => Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(*trailers)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.call.is_none()
            && self.data.is_empty()
            && self.trailers.is_none()
            && self.rest.as_ref().is_none_or(|rest| rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref().map_or(SizeHint::with_exact(0), |rest| rest.size_hint());
        size_hint(self.data.length, rest, self.trailers.is_some())
    }
}

impl<B> Drop for ResponseBody<B> {
    fn drop(&mut self) {
        if let (Some(call), Some(rest)) = (self.call.take(), self.rest.take()) {
            call.go_on(rest);
        }
    }
}

/// The body of an answer, read to its end, or as far as the limits allowed.
pub(crate) enum Read<B> {
    Whole(InMemory, Reservation),
    /// It is larger than the limit, or it is still open and the time is up.
    Stream(ResponseBody<B>),
}

/// Reads the body of an answer, but no more than `limit` bytes and no longer than `patience`.
pub(crate) fn read<B>(
    body: WholeBody<B>,
    limit: usize,
    patience: Duration,
    clock: &dyn Clock,
    mut memory: BodyMemory,
) -> impl Future<Output = Result<Read<B>, BodyError>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    // Not an async function: that would hold its arguments twice, in the memory of every call.
    let mut body = Box::pin(body);
    async move {
        let pulled = pull(body.as_mut(), limit, patience, clock, &mut memory).await?;
        let reserved = memory.into_reservation();
        Ok(match pulled {
            Pulled::Whole(read) => Read::Whole(read, reserved),
            Pulled::TooLarge(data) | Pulled::TooSlow(data) | Pulled::NoRoom(data) => {
                Read::Stream(ResponseBody::stream(data, body).holding(reserved))
            }
        })
    }
}

/// Reads a body of which nothing is left if it is not read whole.
#[allow(clippy::manual_async_fn, reason = "an async function would hold its arguments twice")]
pub(crate) fn read_all<B>(
    body: WholeBody<B>,
    limit: usize,
    patience: Duration,
    clock: &dyn Clock,
    memory: &mut BodyMemory,
) -> impl Future<Output = Result<Pulled, BodyError>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    async move { pull(std::pin::pin!(body), limit, patience, clock, memory).await }
}

/// What came of reading a body.
pub(crate) enum Pulled {
    Whole(InMemory),
    /// It is larger than the limit.
    TooLarge(Pieces),
    /// It is still open, and the time is up.
    TooSlow(Pieces),
    /// There is no memory for more of it. Answers of calls that ran are never told so.
    NoRoom(Pieces),
}

#[allow(clippy::manual_async_fn, reason = "an async function would hold its arguments twice")]
fn pull<B>(
    mut body: Pin<&mut WholeBody<B>>,
    limit: usize,
    patience: Duration,
    clock: &dyn Clock,
    memory: &mut BodyMemory,
) -> impl Future<Output = Result<Pulled, BodyError>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    async move {
        let (mut data, mut trailers) = (Pieces::default(), None);
        if body.size_hint().lower() > limit as u64 {
            return Ok(Pulled::TooLarge(data));
        }
        let lower = usize::try_from(body.size_hint().lower()).unwrap_or(limit);
        if lower > 0 {
            memory.pay_ahead(lower).await;
        }
        let mut time = None;
        while !body.is_end_stream() {
            let next = poll_fn(|cx| match body.as_mut().poll_frame(cx) {
                Poll::Ready(frame) => Poll::Ready(Next::Frame(frame)),
                Poll::Pending if memory.poll_eviction(cx).is_ready() => Poll::Ready(Next::GiveWay),
                // The clock is asked only for bodies that are not there yet, which is rare.
                Poll::Pending => {
                    time.get_or_insert_with(|| clock.sleep(patience)).as_mut().poll(cx).map(|()| Next::Late)
                }
            });
            let frame = match next.await {
                Next::Frame(frame) => frame,
                Next::Late => return Ok(Pulled::TooSlow(data)),
                Next::GiveWay => return Ok(Pulled::NoRoom(data)),
            };
            let Some(frame) = frame.transpose()? else { break };
            match frame.into_data() {
                Ok(bytes) => {
                    let length = bytes.len();
                    data.push(bytes);
                    if data.length > limit {
                        return Ok(Pulled::TooLarge(data));
                    }
                    let mut pay = std::pin::pin!(memory.pay(length));
                    let paid = poll_fn(|cx| {
                        let paid = pay.as_mut().poll(cx);
                        if paid.is_pending() {
                            // It waits for our memory: that is not its slowness, and nothing is lost because of it.
                            time = None;
                        }
                        paid
                    });
                    if let Err(NoRoom) = paid.await {
                        return Ok(Pulled::NoRoom(data));
                    }
                }
                Err(frame) => trailers = frame.into_trailers().ok().map(Box::new),
            }
        }
        Ok(Pulled::Whole(InMemory { bytes: data.join(), trailers }))
    }
}

/// What comes next of a body that is read.
enum Next<F> {
    Frame(F),
    Late,
    GiveWay,
}

/// What was read of a body. Nearly always it is one piece, which needs no memory of its own.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Empty once it is taken.
    first: Bytes,
    /// Boxed, because nearly always there is none, and it is moved with every answer.
    more: Option<Box<More>>,
    length: usize,
}

#[derive(Debug, Default)]
struct More {
    large: VecDeque<Bytes>,
    /// Small pieces behind them are copied together: each would cost more than it holds, and keep what was read beside it.
    small: BytesMut,
}

/// Smaller pieces are copied together.
const SMALL: usize = 4 << 10;
/// How much is copied together.
const COPIED: usize = 64 << 10;

impl Pieces {
    pub(crate) fn push(&mut self, bytes: Bytes) {
        let before = self.length;
        self.length += bytes.len();
        if before == 0 {
            self.first = bytes;
        } else if !bytes.is_empty() {
            self.more.get_or_insert_default().push(bytes);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let bytes = match &mut self.more {
            _ if !self.first.is_empty() => std::mem::take(&mut self.first),
            Some(more) => more.pop()?,
            None => return None,
        };
        self.length -= bytes.len();
        Some(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
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

impl More {
    fn push(&mut self, bytes: Bytes) {
        if bytes.len() < SMALL {
            self.small.extend_from_slice(&bytes);
            if self.small.len() < COPIED {
                return;
            }
        }
        if !self.small.is_empty() {
            self.large.push_back(self.small.split().freeze());
        }
        if bytes.len() >= SMALL {
            self.large.push_back(bytes);
        }
    }

    fn pop(&mut self) -> Option<Bytes> {
        let small = || Some(std::mem::take(&mut self.small).freeze()).filter(|small| !small.is_empty());
        self.large.pop_front().or_else(small)
    }
}
