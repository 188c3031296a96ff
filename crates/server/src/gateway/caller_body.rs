//! The body of a caller's request.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use onlyonce::http::{BodyError, WholeBody};
use tokio::runtime::Handle;

use super::wire::Busy;

/// For how long, and how much, a body is read that nobody wants.
const LINGER: Duration = Duration::from_secs(10);
const MOST: usize = 64 << 20;

/// A body that tells when it was cut off. While it is there, its request is under way.
///
/// Many clients send all of their body before they look at the answer. If the connection were closed on them, or their stream reset, they
/// would never see the 413 that explains it. So what nobody wants is read for a while and thrown away.
pub(crate) struct CallerBody {
    /// Gone once it lingers.
    body: Option<WholeBody<Incoming>>,
    busy: Option<Busy>,
    lingers: bool,
}

impl CallerBody {
    pub(crate) fn new(body: Incoming, head: &Parts, busy: Busy) -> Self {
        // Who waits for "100 Continue" sends nothing before it, and need not be asked to.
        let lingers = !head.headers.contains_key(EXPECT);
        let body = WholeBody::new(body, head.version, &head.headers);
        if body.is_end_stream() {
            busy.keep_memory();
        }
        Self { body: Some(body), busy: Some(busy), lingers }
    }

    /// Waits for the end of a body that should be empty.
    pub(crate) async fn end_of_nothing(&mut self) -> Result<(), BodyError> {
        match &mut self.body {
            Some(body) => body.end_of_nothing().await,
            None => Ok(()),
        }
    }
}

impl Body for CallerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { body: Some(body), busy, .. } = &mut *self else { return Poll::Ready(None) };
        let polled = poll_until_cut(body, busy.as_ref(), cx);
        // Once it was asked for it comes, until it is over or broken.
        self.lingers = !matches!(polled, Poll::Ready(None | Some(Err(_))));
        if matches!(polled, Poll::Ready(None)) || self.is_end_stream() {
            self.busy.iter().for_each(Busy::keep_memory);
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

impl Drop for CallerBody {
    fn drop(&mut self) {
        if !self.lingers || self.is_end_stream() {
            return;
        }
        if let (Some(body), Ok(runtime)) = (self.body.take(), Handle::try_current()) {
            let mut busy = self.busy.take();
            busy.iter_mut().for_each(Busy::give_back_memory);
            runtime.spawn(async move {
                let _ = tokio::time::timeout(LINGER, throw_away(body, busy.as_ref())).await;
                drop(busy);
            });
        }
    }
}

/// The next piece; an error if there is none, and none can come, because the caller has closed its sending half.
fn poll_until_cut(
    body: &mut WholeBody<Incoming>,
    busy: Option<&Busy>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
    let polled = Pin::new(&mut *body).poll_frame(cx);
    if polled.is_ready() || !busy.is_some_and(|busy| busy.waits_for_body(cx)) {
        return polled;
    }
    // All that came before the end may be there by now.
    match Pin::new(body).poll_frame(cx) {
        Poll::Pending => Poll::Ready(Some(Err(BodyError::CutOff))),
        ready => ready,
    }
}

async fn throw_away(mut body: WholeBody<Incoming>, busy: Option<&Busy>) {
    let mut left = MOST;
    while let Some(Ok(frame)) = poll_fn(|cx| poll_until_cut(&mut body, busy, cx)).await {
        match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
            Some(less) => left = less,
            None => return,
        }
    }
}

impl fmt::Debug for CallerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallerBody(..)")
    }
}
