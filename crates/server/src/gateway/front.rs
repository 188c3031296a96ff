//! What a caller's connection talks to: the gateway's own paths, and the layer around the proxy.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Method, Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use onlyonce::http::{IdempotencyService, ProblemKind, ResponseBody, problem};
use parking_lot::RwLock;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service as _;

use super::answer::Answer;
use super::framing;
use super::headers::Peer;
use super::live::Live;
use super::proxy::Proxy;
use super::wire::{Busy, Doings};

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Gate {
    live: RwLock<Arc<Live>>,
    draining: AtomicBool,
}

impl Gate {
    pub(crate) fn new(live: Live) -> Self {
        Self { live: RwLock::new(Arc::new(live)), draining: AtomicBool::new(false) }
    }

    pub(crate) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live.read())
    }

    pub(crate) fn replace(&self, live: Live) {
        *self.live.write() = Arc::new(live);
    }

    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }
}

/// Serves one connection.
#[derive(Debug, Clone)]
pub(crate) struct Front {
    pub(crate) gate: Arc<Gate>,
    pub(crate) peer: Peer,
    pub(crate) doings: Arc<Doings>,
}

impl Front {
    /// The answer to what goes no further.
    fn refusal(&self, request: &Request<Incoming>) -> Option<Response<Bytes>> {
        let path = request.uri().path();
        let ambiguity = framing::ambiguity(request, self.doings.takes_length());
        let kind = if self.gate.is_draining() {
            ProblemKind::Draining
        } else if ambiguity.is_some() {
            ProblemKind::RequestAmbiguous
        } else if request.method() == Method::CONNECT {
            ProblemKind::MethodRefused
        } else if path.starts_with(OWN) && !is_answered(request.method(), path) {
            ProblemKind::NotFound
        } else {
            return None;
        };
        let mut response = problem::response(kind, request.headers(), ambiguity);
        if kind == ProblemKind::RequestAmbiguous && request.version() != Version::HTTP_2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Some(response)
    }
}

/// The paths that are the gateway's own.
pub(crate) const OWN: &str = "/_onlyonce/";
/// What the layer answers of them.
const ANSWERED: [(Method, &str); 4] = [
    (Method::GET, "/_onlyonce/outcome"),
    (Method::GET, "/_onlyonce/once.js"),
    (Method::POST, "/_onlyonce/tokens"),
    (Method::POST, "/_onlyonce/ids"),
];

fn is_answered(method: &Method, path: &str) -> bool {
    ANSWERED.iter().any(|(known, place)| known == method && *place == path)
}

impl hyper::service::Service<Request<Incoming>> for Front {
    type Response = Response<Tail>;
    type Error = Infallible;
    type Future = Reply;

    fn call(&self, request: Request<Incoming>) -> Reply {
        let busy = self.doings.request(request.version() == Version::HTTP_2);
        let way = match self.refusal(&request) {
            Some(response) => Way::Refused { response: Some(response.map(ResponseBody::from)) },
            None => {
                let live = self.gate.live();
                let proxy = Proxy { live: Arc::clone(&live), peer: self.peer.clone() };
                Way::Layer { future: live.layer.layer(proxy).call(request) }
            }
        };
        Reply { way, busy: Some(busy) }
    }
}

type Layered = <IdempotencyService<Proxy> as tower_service::Service<Request<Incoming>>>::Future;

pin_project! {
    /// An answer on its way.
    pub(crate) struct Reply {
        #[pin]
        way: Way,
        busy: Option<Busy>,
    }
}

pin_project! {
    #[project = WayProj]
    enum Way {
        Layer { #[pin] future: Layered },
        Refused { response: Option<Response<ResponseBody<Answer>>> },
    }
}

impl Future for Reply {
    type Output = Result<Response<Tail>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = match this.way.project() {
            WayProj::Layer { future } => match future.poll(cx) {
                Poll::Ready(Ok(response)) => response,
                Poll::Ready(Err(never)) => match never {},
                Poll::Pending => return Poll::Pending,
            },
            WayProj::Refused { response } => {
                response.take().expect("a future is not polled after it is ready")
            }
        };
        let busy = this.busy.take();
        Poll::Ready(Ok(response.map(|body| Tail { body, _busy: busy })))
    }
}

pin_project! {
    /// The body of an answer; until it is written, the request is under way.
    pub(crate) struct Tail {
        #[pin]
        body: ResponseBody<Answer>,
        _busy: Option<Busy>,
    }
}

impl Body for Tail {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
