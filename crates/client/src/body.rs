//! The body of an answer: read where that is wanted, passed on else, and never taken for whole when it was cut off.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// The largest answer that is read whole.
const SMALL: u64 = 1 << 20;

/// It ended before its end.
#[derive(Debug)]
pub(crate) struct CutOff;

impl fmt::Display for CutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer was cut off before its end")
    }
}

impl Error for CutOff {}

/// What an answer says about its body.
pub(crate) struct Head<'a> {
    /// Of the request.
    pub(crate) method: &'a Method,
    pub(crate) status: StatusCode,
    pub(crate) version: Version,
    pub(crate) headers: &'a HeaderMap,
}

impl Head<'_> {
    fn length(&self) -> Option<u64> {
        self.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
    }

    /// Whether its length, if it has one, is that of something else.
    fn is_bodiless(&self) -> bool {
        self.method == Method::HEAD
            || matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    }

    /// Whether it is read before it is judged: what is small, so that it can be fetched again if it breaks off; and what is no
    /// success, because what it means is in it. Anything else may be a stream.
    pub(crate) fn is_read(&self, hint: &SizeHint) -> bool {
        let length = self.length().or(hint.upper());
        length.map_or(self.status.as_u16() >= 400, |length| length <= SMALL)
    }
}

/// What shows that a body has come to its end, and not just to a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// That all of its length has come, where that is known: for bodies through which no more can be seen.
    Counted,
    /// That, or that it says so itself.
    #[cfg_attr(not(feature = "tower"), allow(dead_code, reason = "only seen through a service's bodies"))]
    Said,
}

/// A body that is passed on: what was read of it comes first, and one that was cut off ends with an error.
pub struct Passed<B> {
    first: Option<Bytes>,
    body: Pin<Box<B>>,
    /// How much must still come, where that is known.
    left: Option<u64>,
    /// That it stops without an error is not enough.
    said: bool,
    trailers: bool,
}

/// What reading led to.
pub(crate) enum Read<B> {
    Whole(Bytes),
    /// There is more of it than is read.
    Large(Passed<B>),
}

impl<B> Passed<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    pub(crate) fn new(body: B, head: &Head<'_>, ends: Ends) -> Self {
        // HTTP/1.1 can't end quietly. Over HTTP/2 hyper takes a stream that is reset with NO_ERROR for ended.
        let quiet = head.version == Version::HTTP_2;
        let counts = quiet && !head.is_bodiless() && !body.is_end_stream();
        let left = if counts { head.length() } else { None };
        let said = quiet && ends == Ends::Said;
        Self { first: None, body: Box::pin(body), left, said, trailers: false }
    }

    /// The body of a call that nobody looks after.
    #[cfg(feature = "tower")]
    pub(crate) fn unchecked(body: B) -> Self {
        Self { first: None, body: Box::pin(body), left: None, said: false, trailers: false }
    }

    /// Reads it to its end, if it is small.
    pub(crate) async fn read(mut self) -> Result<Read<B>, BoxError> {
        let mut read = Vec::new();
        while let Some(frame) = self.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            read.extend_from_slice(&data);
            if read.len() as u64 > SMALL {
                self.first = Some(read.into());
                return Ok(Read::Large(self));
            }
        }
        Ok(Read::Whole(read.into()))
    }

    /// Whether a stop is its end.
    fn may_stop(&self) -> bool {
        match self.left {
            Some(left) => left == 0,
            None => !self.said || self.trailers || self.body.is_end_stream(),
        }
    }
}

impl<B> Body for Passed<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        Poll::Ready(match ready!(self.body.as_mut().poll_frame(cx)) {
            Some(Ok(frame)) => {
                let came = frame.data_ref().map_or(0, |data| data.len() as u64);
                self.left = self.left.map(|left| left.saturating_sub(came));
                self.trailers |= frame.is_trailers();
                Some(Ok(frame))
            }
            Some(Err(error)) => Some(Err(error.into())),
            None if self.may_stop() => None,
            None => Some(Err(CutOff.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream() && self.left.is_none_or(|left| left == 0)
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, first) = (self.body.size_hint(), self.first.as_ref().map_or(0, Bytes::len) as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(first));
        }
        hint.set_lower(hint.lower().saturating_add(first));
        hint
    }
}

impl<B> fmt::Debug for Passed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passed").field("left", &self.left).finish_non_exhaustive()
    }
}
