//! A body that tells when it was cut off.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Version};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::body::size_hint;

/// Any error of a body.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// Why a body did not come whole.
#[derive(Debug)]
pub enum BodyError {
    /// The body itself failed.
    Broken(BoxError),
    /// It ended, but not properly: its end was never sent, or it is shorter than its `Content-Length`.
    CutOff,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(error) => write!(f, "the body broke off: {error}"),
            Self::CutOff => f.write_str("the body was cut off before its end"),
        }
    }
}

impl Error for BodyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Broken(error) => Some(&**error),
            Self::CutOff => None,
        }
    }
}

/// What shows that a body has come to its end, and not just to a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// That it stops without an error: HTTP/1.1 can't end quietly.
    Stop,
    /// HTTP/2: that it says so itself. Hyper takes a stream that is reset with NO_ERROR for ended, as RFC 9113 allows for *answers* to
    /// uploads; whoever acts on a body must not.
    Said,
    /// HTTP/2, read through bodies that may not pass the word on: that it says so itself, or that all of its length has come.
    SaidOrCounted,
    /// That it stops without an error: it was checked before by one like this. That all of its length has come shows nothing.
    Checked,
}

pin_project! {
    /// A body that ends with an error if it was cut off.
    ///
    /// Wrap a body of hyper in it before anything is done with it: over HTTP/2 a peer that resets its stream with `NO_ERROR` makes
    /// hyper's body end as if it were whole.
    #[derive(Debug)]
    pub struct WholeBody<B> {
        #[pin]
        body: B,
        end: End,
        // How much must still come, where that is known.
        left: Option<u64>,
        trailers: bool,
        // What waits for the end behind it, or for its turn. Boxed, because it is rare.
        held: Option<Box<Frame<Bytes>>>,
    }
}

impl<B> WholeBody<B> {
    /// A body that is taken as it comes.
    pub(crate) fn unchecked(body: B) -> Self {
        Self { body, end: End::Stop, left: None, trailers: false, held: None }
    }
}

impl<B: Body> WholeBody<B> {
    /// A body as hyper gives it, with the version and the headers that it came with.
    pub fn new(body: B, version: Version, headers: &HeaderMap) -> Self {
        Self::ending(body, if version == Version::HTTP_2 { End::Said } else { End::Stop }, headers)
    }

    /// The same for a body that others may have wrapped before.
    pub(crate) fn wrapped(body: B, version: Version, headers: &HeaderMap) -> Self {
        Self::ending(body, if version == Version::HTTP_2 { End::SaidOrCounted } else { End::Stop }, headers)
    }

    /// The same for a body that was checked before, by whoever relays it.
    pub(crate) fn checked(body: B, headers: &HeaderMap) -> Self {
        Self::ending(body, End::Checked, headers)
    }

    /// The same where there is a length and no body: an answer to HEAD, or 304.
    #[must_use]
    pub fn bodiless(mut self) -> Self {
        self.left = None;
        self
    }

    fn ending(body: B, end: End, headers: &HeaderMap) -> Self {
        // What is over before it began has no body, whatever the length that it would have.
        let left = if body.is_end_stream() { None } else { length(headers) };
        Self { body, end, left, trailers: false, held: None }
    }

    /// Whether everything that belongs to it has come. More may follow only where that does not change what it says.
    pub(crate) fn has_come(&self) -> bool {
        let counted = self.left == Some(0) && !matches!(self.end, End::Said | End::Checked);
        let is_short = self.left.is_some_and(|left| left > 0);
        counted || (!is_short && (self.trailers || self.body.is_end_stream()))
    }

    /// Whether all of its length is there, and its end is not.
    pub(crate) fn lacks_only_its_end(&self) -> bool {
        self.left == Some(0) && !self.has_come()
    }

    /// Whether a stop is its end.
    fn may_stop(&self) -> bool {
        match self.left {
            Some(left) if left > 0 => false,
            _ => matches!(self.end, End::Stop | End::Checked) || self.has_come(),
        }
    }
}

impl<B> WholeBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    /// Waits for the end of a body that should be empty. Whoever has the head of its message takes that for all of it, so the head must
    /// not go on before. What comes nevertheless is dropped; trailers are given later.
    ///
    /// # Errors
    /// If it was cut off.
    pub async fn end_of_nothing(&mut self) -> Result<(), BodyError> {
        while !self.body.is_end_stream() && !self.trailers {
            match poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await {
                Some(Ok(frame)) if frame.is_trailers() => {
                    self.trailers = true;
                    self.held = Some(Box::new(frame));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(BodyError::Broken(error.into())),
                None if self.may_stop() => return Ok(()),
                None => return Err(BodyError::CutOff),
            }
        }
        Ok(())
    }
}

/// The one length that is named, however often; several or none say nothing.
fn length(headers: &HeaderMap) -> Option<u64> {
    let mut lengths =
        headers.get_all(CONTENT_LENGTH).iter().map(|length| length.to_str().ok()?.parse::<u64>().ok());
    let first = lengths.next()??;
    lengths.all(|length| length == Some(first)).then_some(first)
}

impl<B> Body for WholeBody<B>
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
        loop {
            let mut this = self.as_mut().project();
            // Trailers are the end, and what waits behind it has its turn.
            if *this.trailers && this.held.is_some() {
                return Poll::Ready(this.held.take().map(|frame| Ok(*frame)));
            }
            let frame = match ready!(this.body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    *this.held = None;
                    return Poll::Ready(Some(Err(BodyError::Broken(error.into()))));
                }
                None => {
                    let last = this.held.take();
                    let whole = self.may_stop();
                    return Poll::Ready(if whole {
                        last.map(|last| Ok(*last))
                    } else {
                        Some(Err(BodyError::CutOff))
                    });
                }
            };
            let came = frame.data_ref().map_or(0, |data| data.len() as u64);
            *this.left = this.left.map(|left| left.saturating_sub(came));
            *this.trailers |= frame.is_trailers();
            let ends = *this.trailers || this.body.is_end_stream();
            match this.held.take() {
                // Who knows the length takes the last of it for the end. A stream may still be reset behind it.
                None if *this.end == End::Said && *this.left == Some(0) && !ends => {
                    *this.held = Some(Box::new(frame));
                }
                None => return Poll::Ready(Some(Ok(frame))),
                Some(last) if frame.is_trailers() => {
                    *this.held = Some(Box::new(frame));
                    return Poll::Ready(Some(Ok(*last)));
                }
                Some(_) if came > 0 => {
                    return Poll::Ready(Some(Err(BodyError::Broken("it is longer than its length".into()))));
                }
                Some(last) if ends => return Poll::Ready(Some(Ok(*last))),
                Some(last) => *this.held = Some(last),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none() && self.body.is_end_stream() && self.left.is_none_or(|left| left == 0)
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held.as_ref().and_then(|frame| frame.data_ref()).map_or(0, Bytes::len);
        size_hint(held, self.body.size_hint(), false)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use futures_util::FutureExt;
    use http_body_util::BodyExt;

    use super::*;

    /// A body that is over after its frames, and says so or does not.
    struct Frames(VecDeque<Frame<Bytes>>, bool);

    impl Body for Frames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }

        fn is_end_stream(&self) -> bool {
            self.1 && self.0.is_empty()
        }
    }

    fn is_whole(version: Version, length: Option<u64>, says: bool, trailers: bool, exact: bool) -> bool {
        let mut frames = VecDeque::from([Frame::data(Bytes::from_static(b"amount=10"))]);
        if trailers {
            frames.push_back(Frame::trailers(HeaderMap::new()));
        }
        let headers = length.map(|length| (CONTENT_LENGTH, length.into())).into_iter().collect();
        let body = Frames(frames, says);
        let body = if exact {
            WholeBody::new(body, version, &headers)
        } else {
            WholeBody::wrapped(body, version, &headers)
        };
        body.collect().now_or_never().unwrap().is_ok()
    }

    #[test]
    fn a_body_that_is_shorter_than_its_length_has_not_come() {
        for trailers in [false, true] {
            let mut frames = VecDeque::from([Frame::data(Bytes::from_static(b"amount=10"))]);
            if trailers {
                frames.push_back(Frame::trailers(HeaderMap::new()));
            }
            let headers = [(CONTENT_LENGTH, 100.into())].into_iter().collect();
            let mut body = WholeBody::wrapped(Frames(frames, true), Version::HTTP_11, &headers);
            while let Some(Ok(_)) = body.frame().now_or_never().unwrap() {
                assert!(!body.has_come());
            }
        }
    }

    #[test]
    fn the_last_of_a_length_waits_for_the_end_of_its_stream() {
        let body = |says: bool, frames: &[Frame<Bytes>]| {
            let copy = |frame: &Frame<Bytes>| match (frame.data_ref(), frame.trailers_ref()) {
                (Some(data), _) => Frame::data(data.clone()),
                (_, trailers) => Frame::trailers(trailers.cloned().unwrap_or_default()),
            };
            let headers = [(CONTENT_LENGTH, 9.into())].into_iter().collect();
            WholeBody::new(Frames(frames.iter().map(copy).collect(), says), Version::HTTP_2, &headers)
        };
        let data = |text: &'static str| Frame::data(Bytes::from_static(text.as_bytes()));
        let trailers = || Frame::trailers([(http::header::ETAG, 7.into())].into_iter().collect());
        let next = |body: &mut WholeBody<Frames>| body.frame().now_or_never().unwrap();
        // Cut off behind all of its length: the last piece was never given out.
        let mut cut = body(false, &[data("amount"), data("=10"), data("")]);
        assert_eq!(next(&mut cut).unwrap().unwrap().data_ref().unwrap(), "amount");
        assert!(matches!(next(&mut cut), Some(Err(BodyError::CutOff))));
        // The end comes apart, as an empty piece or as trailers.
        for rest in [vec![data("")], vec![], vec![trailers()], vec![data(""), trailers()]] {
            let frames = [vec![data("amount"), data("=10")], rest].into_iter().flatten().collect::<Vec<_>>();
            let whole = body(true, &frames).collect().now_or_never().unwrap().unwrap();
            assert_eq!(whole.trailers().is_some(), frames.last().unwrap().is_trailers());
            assert_eq!(whole.to_bytes(), "amount=10");
        }
        // More than was announced.
        let mut long = body(true, &[data("amount=10"), data("0"), data("")]);
        assert!(matches!(next(&mut long), Some(Err(BodyError::Broken(_)))));
    }

    #[test]
    fn a_body_is_whole_if_its_end_was_seen() {
        let (one, two) = (Version::HTTP_11, Version::HTTP_2);
        for exact in [true, false] {
            assert!(is_whole(one, None, false, false, exact) && is_whole(one, Some(9), false, false, exact));
            assert!(is_whole(two, None, true, false, exact) && is_whole(two, Some(9), true, false, exact));
            assert!(is_whole(two, None, false, true, exact));
            assert!(!is_whole(two, None, false, false, exact));
            for version in [one, two] {
                assert!(!is_whole(version, Some(10), true, false, exact), "shorter than its length");
                assert!(!is_whole(version, Some(10), false, true, exact));
            }
        }
        // All of its length came, and then a reset: only where nothing else can be known is that enough.
        assert!(!is_whole(two, Some(9), false, false, true) && is_whole(two, Some(9), false, false, false));
    }
}
