//! The body of a request on its way to the upstream.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body::{Body, Frame, SizeHint};
use onlyonce::http::{BodyError, RequestBody};
use tokio::time::{Sleep, sleep};

use super::caller_body::CallerBody;
use super::headers;
use super::multiplexed::Stream;
use super::names::Names;

/// What is sent: as it comes from the caller, within limits, or nothing.
pub(crate) struct Outgoing {
    body: Option<RequestBody<CallerBody>>,
    left: usize,
    patience: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// How many pieces were taken; there as long as not all of them were.
    taken: Arc<AtomicUsize>,
    /// What may not come in trailers.
    names: Option<Arc<Names>>,
    /// Its place on a connection of HTTP/2: taken for as long as there is something to be sent, also behind the answer.
    stream: Option<Stream>,
}

impl Outgoing {
    pub(crate) fn new(
        body: RequestBody<CallerBody>,
        limit: Option<usize>,
        patience: Duration,
        names: Arc<Names>,
    ) -> Self {
        let left = limit.unwrap_or(usize::MAX);
        Self {
            body: Some(body),
            left,
            patience,
            timer: None,
            taken: Arc::default(),
            names: Some(names),
            stream: None,
        }
    }

    pub(crate) fn empty() -> Self {
        let patience = Duration::ZERO;
        Self { body: None, left: 0, patience, timer: None, taken: Arc::default(), names: None, stream: None }
    }

    /// Goes on this stream, or, if there is none, on a connection of its own.
    pub(super) fn goes_on(&mut self, stream: Option<Stream>) {
        self.stream = stream;
    }

    /// Counts the pieces that were taken; gone when the body is.
    pub(crate) fn progress(&self) -> Weak<AtomicUsize> {
        Arc::downgrade(&self.taken)
    }
}

/// Why a caller's body did not come whole.
#[derive(Debug)]
pub(crate) enum BodyFault {
    TooLarge,
    Stalled,
    Broken(BodyError),
}

impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the request body is larger than max_body",
            Self::Stalled => "the request body stalled",
            Self::Broken(_) => "the caller broke off its request",
        })
    }
}

impl Error for BodyFault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Broken(error) => Some(error),
            _ => None,
        }
    }
}

/// Some services take trailers for headers; what was judged by the headers must not change behind them.
fn without_what_counts(trailers: &mut HeaderMap, names: &Names) {
    let counting: Vec<HeaderName> = trailers
        .keys()
        .filter(|name| names.counts(name.as_str()) || headers::is_special(name))
        .cloned()
        .collect();
    for name in counting {
        trailers.remove(name);
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        match Pin::new(body).poll_frame(cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                this.timer = None;
                this.taken.fetch_add(1, Ordering::Relaxed);
                if let (Some(trailers), Some(names)) = (frame.trailers_mut(), &this.names) {
                    without_what_counts(trailers, names);
                }
                let length = frame.data_ref().map_or(0, Bytes::len);
                match this.left.checked_sub(length) {
                    Some(left) => this.left = left,
                    None => return Poll::Ready(Some(Err(BodyFault::TooLarge))),
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(BodyFault::Broken(error)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let timer = this.timer.get_or_insert_with(|| Box::pin(sleep(this.patience)));
                timer.as_mut().poll(cx).map(|()| Some(Err(BodyFault::Stalled)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
