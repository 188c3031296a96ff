//! The body of an upstream's answer, which gives its connection back at its end.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::link::Link;
use super::upstream::Upstream;

/// What the upstream answers, as it comes; or an answer of the gateway's own.
pub(crate) struct Answer {
    body: Option<Incoming>,
    own: Bytes,
    /// The connection that it comes on, and where that belongs.
    link: Option<(Link, Arc<Upstream>)>,
}

impl Answer {
    pub(crate) fn on(body: Incoming, link: Link, home: Arc<Upstream>) -> Self {
        let mut answer = Self::switching(body, link, home);
        answer.give_back_at_end();
        answer
    }

    /// On a connection that is about to speak another protocol, and is never given back.
    pub(crate) fn switching(body: Incoming, link: Link, home: Arc<Upstream>) -> Self {
        Self { body: Some(body), own: Bytes::new(), link: Some((link, home)) }
    }

    /// On a connection that others use too.
    pub(crate) fn shared(body: Incoming) -> Self {
        Self { body: Some(body), own: Bytes::new(), link: None }
    }

    pub(crate) fn own(bytes: Bytes) -> Self {
        Self { body: None, own: bytes, link: None }
    }

    /// Takes the connection out, because it is about to speak another protocol.
    pub(crate) fn take_link(&mut self) -> Option<Link> {
        self.link.take().map(|(link, _)| link)
    }

    fn give_back_at_end(&mut self) {
        if self.body.as_ref().is_none_or(Body::is_end_stream)
            && let Some((link, home)) = self.link.take()
        {
            home.give_back(link);
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else {
            let own = std::mem::take(&mut this.own);
            return Poll::Ready((!own.is_empty()).then(|| Ok(Frame::data(own))));
        };
        let mut polled = Pin::new(&mut *body).poll_frame(cx);
        if polled.is_pending()
            && let Some((link, _)) = &mut this.link
        {
            link.drive(cx);
            polled = Pin::new(body).poll_frame(cx);
        }
        match &polled {
            // A connection whose answer broke off is of no use to anybody.
            Poll::Ready(Some(Err(_))) => this.link = None,
            Poll::Ready(_) => this.give_back_at_end(),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().map_or(self.own.is_empty(), Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(self.own.len() as u64), Body::size_hint)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer(..)")
    }
}
