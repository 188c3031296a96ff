//! What a caller's connection talks to: the gateway's own paths, and the layer around the proxy.

use std::borrow::Cow;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, COOKIE, HeaderMap, HeaderValue};
use http::{Method, Request, Response, Version};
use hyper::body::Incoming;
use onlyonce::http::{Account, IdempotencyService, ProblemKind, ResponseBody, problem};
use parking_lot::RwLock;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service as _;

use super::answer::Answer;
use super::caller_body::CallerBody;
use super::framing;
use super::headers::{self, Peer};
use super::hops::Hops;
use super::live::Live;
use super::proxy::Proxy;
use super::resources::Resources;
use super::serve::{App, STREAMS, Serving};
use super::tail::{Tail, Unread};
use super::wire::{Doings, HeadMemory};

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Gate {
    live: RwLock<Arc<Live>>,
    draining: AtomicBool,
    pub(crate) resources: Resources,
}

impl Gate {
    pub(crate) fn new(live: Live, resources: Resources) -> Self {
        Self { live: RwLock::new(Arc::new(live)), draining: AtomicBool::new(false), resources }
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

impl App for Arc<Gate> {
    type Body = ResponseBody<Answer>;
    type Service = Front;

    fn serving(&self) -> Arc<Serving> {
        Arc::clone(&self.live().serving)
    }

    fn account(&self) -> Account {
        self.resources.memory.account_of_connection()
    }

    fn service(&self, peer: Peer, doings: Arc<Doings>) -> Front {
        Front { gate: Arc::clone(self), peer, doings }
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
    fn refusal(&self, request: &Request<CallerBody>, live: &Live) -> Option<Response<Bytes>> {
        let (method, headers) = (request.method(), request.headers());
        if self.gate.is_draining() {
            return Some(problem::response(ProblemKind::Draining, headers, None));
        }
        if count_headers(headers) > MOST_HEADERS {
            return Some(problem::response(ProblemKind::HeadTooLarge, headers, None));
        }
        let ambiguity = framing::ambiguity(request, self.doings.takes_length()).map(Cow::Borrowed);
        if let Some(why) = ambiguity.or_else(|| live.names.ambiguity(headers).map(Cow::Owned)) {
            let mut response = problem::response(ProblemKind::RequestAmbiguous, headers, Some(&why));
            if request.version() != Version::HTTP_2 {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            return Some(response);
        }
        let is_last = Hops::of(method, headers) == Hops::Left(0);
        let mut response = match *method {
            // It asks whoever is last, and that is us.
            Method::OPTIONS if is_last => Response::new(Bytes::new()),
            Method::TRACE if is_last => problem::response(ProblemKind::MethodRefused, headers, None),
            Method::CONNECT => problem::response(ProblemKind::MethodRefused, headers, None),
            _ if request.uri().path().starts_with(OWN) && !ANSWERED.contains(&request.uri().path()) => {
                return Some(problem::response(ProblemKind::NotFound, headers, None));
            }
            _ => return None,
        };
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(RELAYED));
        Some(response)
    }
}

/// The paths that are the gateway's own.
pub(crate) const OWN: &str = "/_onlyonce/";
/// What the layer answers of them.
const ANSWERED: [&str; 4] =
    ["/_onlyonce/outcome", "/_onlyonce/once.js", "/_onlyonce/tokens", "/_onlyonce/ids"];
/// The usual methods of those that are relayed.
const RELAYED: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

impl hyper::service::Service<Request<Incoming>> for Front {
    type Response = Response<Tail<ResponseBody<Answer>>>;
    type Error = Infallible;
    type Future = Reply;

    fn call(&self, mut request: Request<Incoming>) -> Reply {
        let (account, multiplexed) = (&self.doings.account, request.version() == Version::HTTP_2);
        let mark = account.mark();
        let memory = if self.doings.calls() < MOST_CALLS {
            account.take(REQUEST + size_of_head(request.headers()))
        } else {
            None
        };
        let memory = memory.map(|reserved| HeadMemory::new(reserved, Arc::clone(&self.doings)));
        let overloaded = memory.is_none();
        let busy = self.doings.request(multiplexed, memory.clone());
        self.doings.note_last(headers::is_last(request.version(), request.headers()));
        let unread = Unread::new(busy.clone(), account.clone(), multiplexed);
        if multiplexed {
            self.doings.hand_over_stream(Arc::clone(&unread));
        }
        request.extensions_mut().insert(account.clone());
        request.extensions_mut().insert(mark);
        memory.and_then(|memory| request.extensions_mut().insert(memory));
        // A version that has no chunks ends an answer of unknown length by closing.
        let ends_by_close = request.version() < Version::HTTP_11;
        let (head, body) = request.into_parts();
        let body = CallerBody::new(body, &head, busy);
        let request = Request::from_parts(head, body);
        let live = self.gate.live();
        let refusal = self.refusal(&request, &live).or_else(|| {
            overloaded.then(|| problem::response(ProblemKind::Overloaded, request.headers(), None))
        });
        let way = match refusal {
            Some(response) => Way::Refused { response: Some(response.map(ResponseBody::from)) },
            None => {
                let doings = Arc::clone(&self.doings);
                let proxy = Proxy { live: Arc::clone(&live), peer: self.peer.clone(), doings };
                Way::Layer { future: live.layer.layer(proxy).call(request) }
            }
        };
        Reply { way, unread: Some(unread), ends_by_close }
    }
}

/// What every request takes beside its head: buffers of its connections, and the memory of what is done for it.
const REQUEST: usize = 16 << 10;

/// How many calls of one connection may be without an answer, also those whose caller has left: as many as it may have streams, and some
/// that have just been answered.
const MOST_CALLS: u32 = STREAMS + STREAMS / 4;

/// As in HTTP/1.1, where hyper counts.
const MOST_HEADERS: usize = 100;

/// Cookies count as one line, as which they are sent on.
fn count_headers(headers: &HeaderMap) -> usize {
    let cookies = if headers.len() > MOST_HEADERS { headers.get_all(COOKIE).iter().count() } else { 0 };
    headers.len() - cookies.saturating_sub(1)
}

fn size_of_head(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

type Layered = <IdempotencyService<Proxy> as tower_service::Service<Request<CallerBody>>>::Future;

pin_project! {
    /// An answer on its way.
    pub(crate) struct Reply {
        #[pin]
        way: Way,
        unread: Option<Arc<Unread>>,
        ends_by_close: bool,
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
    type Output = Result<Response<Tail<ResponseBody<Answer>>>, Infallible>;

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
        let unread = this.unread.take().expect("a future is not polled after it is ready");
        let ends_by_close = *this.ends_by_close;
        Poll::Ready(Ok(response.map(|body| Tail::new(body, unread, ends_by_close))))
    }
}
