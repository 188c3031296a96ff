//! The service: what is passed on, and what goes through the engine.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::body::{RequestBody, ResponseBody};
use crate::call::{self, Call};
use crate::endpoints;
use crate::key::Early;
use crate::lax;
use crate::layer::Shared;
use crate::meter::Meter;
use crate::options::MissingKey;
use crate::problem::{Problem, ProblemKind};
use crate::scope::Caller;
use crate::stages::OnItsWay;
use crate::whole::BoxError;

/// A service whose writes are idempotent. Made by [`IdempotencyLayer`](crate::IdempotencyLayer).
#[derive(Debug, Clone)]
pub struct IdempotencyService<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> IdempotencyService<S> {
    pub(crate) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that was polled ready takes the call; a clone of it may not be.
        let ready_clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, ready_clone);
        let shared = Arc::clone(&self.shared);
        let (parts, body) = request.into_parts();

        if let Some(endpoint) = endpoints::find(&shared, &parts) {
            let answer = async move { Ok(endpoints::answer(endpoint, &shared, parts).await) };
            return ResponseFuture { way: Way::Own { future: Box::pin(answer) } };
        }
        let route = shared.routes.find(&parts);
        if let Some(why) = lax::ambiguity(&shared.routes, &parts, route) {
            let problem = Problem::new(ProblemKind::RequestAmbiguous).because(why);
            let route = route.unwrap_or(shared.routes.usual());
            return ResponseFuture::known(call::refuse(route, &shared, &parts, problem));
        }
        let Some(route) = route else {
            let request = Request::from_parts(parts, RequestBody::passed(body));
            return ResponseFuture::passed(inner.call(request));
        };
        let refuse = |kind, why: Option<String>| {
            let problem = Problem::new(kind);
            let problem = why.into_iter().fold(problem, Problem::because);
            ResponseFuture::known(call::refuse(route, &shared, &parts, problem))
        };
        let early = match route.options.early(&parts) {
            Ok(Early::Missing) if route.options.missing_key == MissingKey::Pass => {
                Meter::unkeyed(&shared, route);
                let request = Request::from_parts(parts, RequestBody::passed(body));
                return ResponseFuture::passed(inner.call(request));
            }
            Ok(Early::Missing) => return refuse(ProblemKind::KeyMissing, Some(route.options.key.place())),
            Ok(Early::Key(key)) => Some(key),
            Ok(Early::InBody) => None,
            Err(why) => return refuse(ProblemKind::KeyInvalid, Some(why.to_string())),
        };
        let caller = match shared.scope.find(&parts) {
            // A request whose key turns out to be missing needs no scope.
            absent @ Caller::Absent(_) if early.is_none() => absent,
            caller => match caller.scope() {
                Ok(scope) => Caller::Known(scope),
                Err(problem) => return ResponseFuture::known(call::refuse(route, &shared, &parts, problem)),
            },
        };
        let route = Arc::clone(route);
        let call = Box::new(Call { route, shared, inner, parts, caller });
        ResponseFuture::call(OnItsWay::new(call.answer(body, early)))
    }
}

type Answer<R, E> = Result<Response<ResponseBody<R>>, E>;

pin_project! {
    /// The answer of an [`IdempotencyService`], on its way.
    pub struct ResponseFuture<F, R, E> {
        #[pin]
        way: Way<F, R, E>,
    }
}

pin_project! {
    #[project = WayProj]
    enum Way<F, R, E> {
        // Untouched.
        Passed { #[pin] future: F },
        // Reads the body, then runs the call.
        Call { future: OnItsWay<Answer<R, E>> },
        // An endpoint of this layer.
        Own { future: Pin<Box<dyn Future<Output = Answer<R, E>> + Send>> },
        Known { response: Option<Response<ResponseBody<R>>> },
    }
}

impl<F, R, E> ResponseFuture<F, R, E> {
    fn passed(future: F) -> Self {
        Self { way: Way::Passed { future } }
    }

    fn call(future: OnItsWay<Answer<R, E>>) -> Self {
        Self { way: Way::Call { future } }
    }

    fn known(response: Response<ResponseBody<R>>) -> Self {
        Self { way: Way::Known { response: Some(response) } }
    }
}

impl<F, R, E> Future for ResponseFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Answer<R, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().way.project() {
            WayProj::Passed { future } => {
                let response = ready!(future.poll(cx));
                Poll::Ready(response.map(|response| response.map(ResponseBody::passed)))
            }
            WayProj::Call { future } => Pin::new(future).poll(cx),
            WayProj::Own { future } => future.as_mut().poll(cx),
            WayProj::Known { response } => {
                Poll::Ready(Ok(response.take().expect("a future is not polled after it is ready")))
            }
        }
    }
}

impl<F, R, E> fmt::Debug for ResponseFuture<F, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture(..)")
    }
}
