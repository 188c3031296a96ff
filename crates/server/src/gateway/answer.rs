//! The body of an upstream's answer, which gives its connection back at its end.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use onlyonce::http::{BodyError, WholeBody};

use super::flow::{Answered, Flow};
use super::link::{Link, MOST_HEADERS};
use super::multiplexed::Stream;
use super::silence::Silence;
use super::upstream::{Keyed, Undelivered, Upstream};
use super::{framing, headers, silence};

/// What the upstream answers, as it comes; or an answer of the gateway's own.
pub(crate) struct Answer {
    body: Option<WholeBody<Incoming>>,
    own: Bytes,
    /// The connection that it comes on, and where that belongs.
    link: Option<(Link, Arc<Upstream>)>,
    /// Its place on a connection that others use too.
    stream: Option<Stream>,
    /// How long nothing may come of it.
    silence: Option<Silence>,
    /// What it has in common with its request, if that is still being sent.
    flow: Option<Answered>,
    /// Whether what the upstream says of its outcome counts.
    pub(crate) keyed: Keyed,
}

impl Answer {
    /// On a connection of its own, which is given back at the end.
    ///
    /// # Errors
    /// If nobody can be sure where it ends.
    pub(crate) async fn on(
        response: Response<Incoming>,
        to: &Method,
        link: Link,
        home: Arc<Upstream>,
        flow: Option<Arc<Flow>>,
    ) -> Result<Response<Self>, Undelivered> {
        let patience = home.patience();
        let answer = Self::of(response, to, patience, flow).await?.map(|mut answer| {
            answer.link = Some((link, home));
            if answer.is_end_stream() {
                answer.give_back();
            }
            answer
        });
        Ok(answer)
    }

    /// On a connection that is about to speak another protocol, and is never given back.
    pub(crate) fn switching(response: Response<Incoming>, link: Link, home: Arc<Upstream>) -> Response<Self> {
        response.map(|body| {
            let body = WholeBody::new(body, Version::HTTP_11, &HeaderMap::new());
            Self { body: Some(body), link: Some((link, home)), ..Self::own(Bytes::new()) }
        })
    }

    /// On a connection that others use too, where nothing comes for this long at the most.
    ///
    /// # Errors
    /// If nobody can be sure where it ends.
    pub(crate) async fn shared(
        response: Response<Incoming>,
        to: &Method,
        stream: Stream,
        patience: Duration,
        flow: Option<Arc<Flow>>,
    ) -> Result<Response<Self>, Undelivered> {
        let answer = Self::of(response, to, patience, flow).await?.map(|mut answer| {
            answer.stream = (!answer.is_end_stream()).then_some(stream);
            answer
        });
        Ok(answer)
    }

    async fn of(
        response: Response<Incoming>,
        to: &Method,
        patience: Duration,
        flow: Option<Arc<Flow>>,
    ) -> Result<Response<Self>, Undelivered> {
        let (mut head, body) = response.into_parts();
        // As in HTTP/1.1, where hyper counts.
        if head.headers.len() > MOST_HEADERS {
            return Err(Undelivered::Broken(format!("the answer has more than {MOST_HEADERS} headers")));
        }
        framing::settle(&mut head.headers)
            .map_err(|why| Undelivered::Broken(format!("the answer: {why}")))?;
        let mut body = WholeBody::new(body, head.version, &head.headers);
        let without_content =
            *to == Method::HEAD || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if without_content {
            body = body.bodiless();
        }
        // A caller of HTTP/1 takes such an answer for whole when it has the head, and HTTP/2 may still break it off.
        if without_content || framing::is_empty(&head.headers) {
            let end = body.end_of_nothing().await;
            end.map_err(|error| Undelivered::Broken(format!("the answer: {error}")))?;
        }
        let flow = flow.map(Answered);
        if let Some(Answered(flow)) = &flow {
            flow.moves();
            if silence::is_events(&head.headers) {
                flow.set_long_lived(true);
            }
        }
        let silence = Some(Silence::of(&head.headers, patience));
        let answer = Self { body: Some(body), silence, flow, ..Self::own(Bytes::new()) };
        Ok(Response::from_parts(head, answer))
    }

    pub(crate) fn own(bytes: Bytes) -> Self {
        Self { body: None, own: bytes, link: None, stream: None, silence: None, flow: None, keyed: Keyed::No }
    }

    /// Takes the connection out, because it is about to speak another protocol.
    pub(crate) fn take_link(&mut self) -> Option<Link> {
        self.link.take().map(|(link, _)| link)
    }

    fn give_back(&mut self) {
        (self.stream, self.flow) = (None, None);
        if let Some((link, home)) = self.link.take() {
            home.give_back(link);
        }
    }
}

const SILENT: &str = "the upstream fell silent for longer than response_timeout";

impl Body for Answer {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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
        if let Some(silence) = &mut this.silence {
            let flow = this.flow.as_ref().map(|Answered(flow)| &**flow);
            if polled.is_ready() {
                silence.ends();
                flow.iter().for_each(|flow| flow.moves());
            } else if silence.poll(cx, flow).is_ready() {
                polled = Poll::Ready(Some(Err(BodyError::Broken(SILENT.into()))));
            }
        }
        match &polled {
            // A connection whose answer broke off is of no use to anybody.
            Poll::Ready(Some(Err(_))) => (this.link, this.flow) = (None, None),
            Poll::Ready(None) => this.give_back(),
            Poll::Ready(Some(Ok(_))) if this.is_end_stream() => this.give_back(),
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
        }
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(trailers) = frame.trailers_mut()
            && headers::take_outcome(trailers).is_some()
            && this.keyed == Keyed::Yes
        {
            // The head was weighed without it, so nobody can be sure what the answer means.
            let late = "Onlyonce-Outcome stands in the trailers, and not in the head";
            return Poll::Ready(Some(Err(BodyError::Broken(late.into()))));
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
