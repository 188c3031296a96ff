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
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};

use super::caller_body::CallerBody;
use super::flow::Flow;
use super::headers;
use super::multiplexed::Stream;
use super::names::Names;
use super::upstream::Fault;

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
    /// What it has in common with its answer, if it is sent while it comes.
    flow: Option<Arc<Flow>>,
    /// Its place among those that may be silent for as long as they like.
    quiet: Option<OwnedSemaphorePermit>,
    /// Its place on a connection of HTTP/2: taken for as long as there is something to be sent, also behind the answer.
    stream: Option<Stream>,
}

impl Outgoing {
    pub(crate) fn new(
        body: RequestBody<CallerBody>,
        limit: Option<usize>,
        patience: Duration,
        names: Arc<Names>,
        quiet: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let left = limit.unwrap_or(usize::MAX);
        let flow = (body.is_passed_on() && !body.is_end_stream()).then(Flow::new);
        Self {
            body: Some(body),
            left,
            patience,
            timer: None,
            taken: Arc::default(),
            names: Some(names),
            flow,
            quiet,
            stream: None,
        }
    }

    pub(crate) fn empty() -> Self {
        let (patience, taken) = (Duration::ZERO, Arc::default());
        Self {
            body: None,
            left: 0,
            patience,
            timer: None,
            taken,
            names: None,
            flow: None,
            quiet: None,
            stream: None,
        }
    }

    /// Goes on this stream, or, if there is none, on a connection of its own: which is no place for what may be silent for ever.
    pub(super) fn goes_on(&mut self, stream: Option<Stream>) {
        if stream.is_none() {
            self.quiet = None;
        }
        if let Some(flow) = &self.flow {
            flow.set_long_lived(self.quiet.is_some());
        }
        self.stream = stream;
    }

    /// What it has in common with its answer, if it is sent while it comes.
    pub(super) fn flow(&self) -> Option<Arc<Flow>> {
        self.flow.clone()
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

impl BodyFault {
    pub(super) fn of_caller(&self) -> Fault {
        match self {
            Self::TooLarge => Fault::TooLarge,
            Self::Stalled => Fault::Stalled,
            Self::Broken(_) => Fault::Broken,
        }
    }
}

/// Some services take trailers for headers; what was judged by the headers must not change behind them.
fn without_what_counts(trailers: &mut HeaderMap, names: &Names) {
    let counting: Vec<HeaderName> = trailers
        .keys()
        .filter(|name| names.changes_by_trailer(name) || headers::is_special(name))
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
        let polled = this.poll_piece(cx);
        if let Some(flow) = &this.flow {
            flow.waits_for_caller(polled.is_pending());
            match &polled {
                // The first is the one that counts.
                Poll::Ready(Some(Err(fault))) => drop(flow.fault.set(fault.of_caller())),
                Poll::Ready(_) => flow.moves(),
                Poll::Pending => {}
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Outgoing {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match Pin::new(body).poll_frame(cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                self.timer = None;
                self.taken.fetch_add(1, Ordering::Relaxed);
                if let (Some(trailers), Some(names)) = (frame.trailers_mut(), &self.names) {
                    without_what_counts(trailers, names);
                }
                let length = frame.data_ref().map_or(0, Bytes::len);
                match self.left.checked_sub(length) {
                    Some(left) => self.left = left,
                    None => return Poll::Ready(Some(Err(BodyFault::TooLarge))),
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(BodyFault::Broken(error)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self.poll_patience(cx).map(|()| Some(Err(BodyFault::Stalled))),
        }
    }

    /// Ready when the caller has sent nothing for too long, and was not waiting for its answer meanwhile.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(flow) = &self.flow else { return Poll::Pending };
        loop {
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.patience)));
            std::task::ready!(timer.as_mut().poll(cx));
            // It may end to be long-lived, and nobody says so.
            let left = if flow.is_long_lived() { Some(self.patience) } else { flow.left(self.patience) };
            match left {
                Some(left) => self.timer = Some(Box::pin(sleep(left))),
                None => return Poll::Ready(()),
            }
        }
    }
}
