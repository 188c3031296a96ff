//! The body of a request on its way to the upstream.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use onlyonce::http::RequestBody;
use tokio::time::{Sleep, sleep};

/// What is sent: as it comes from the caller, within limits, or nothing.
pub(crate) struct Outgoing {
    body: Option<RequestBody<Incoming>>,
    left: usize,
    patience: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Outgoing {
    pub(crate) fn new(body: RequestBody<Incoming>, limit: Option<usize>, patience: Duration) -> Self {
        Self { body: Some(body), left: limit.unwrap_or(usize::MAX), patience, timer: None }
    }

    pub(crate) fn empty() -> Self {
        Self { body: None, left: 0, patience: Duration::ZERO, timer: None }
    }
}

/// Why a caller's body did not come whole.
#[derive(Debug)]
pub(crate) enum BodyFault {
    TooLarge,
    Stalled,
    Broken(hyper::Error),
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
            Poll::Ready(Some(Ok(frame))) => {
                this.timer = None;
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
