//! Calls by a client that is a tower service.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use http_body_util::{Either, Full};
use hyper_util::client::legacy::connect::capture_connection;
use tower_http::follow_redirect::RequestUri;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::{BoxError, Ends, Head, Passed, Read};
use crate::call::{Answered, CallKey, Ended, OnlyOnce, Way};
use crate::outcome::{self, Target};
use crate::verdict::Verdict;

/// The body of an answer: read whole if it is small, else as it comes. It ends with an error if it was cut off.
pub type AnswerBody<B> = Either<Full<Bytes>, Passed<B>>;

/// A client whose calls have one key each and safe retries; made by the [`Layer`] that [`OnlyOnce`] is.
///
/// The client under it is a service from `http::Request<B>` to `http::Response`, such as hyper-util's. Every attempt is a call to a
/// clone of it, and `B` is cloned (`Full<Bytes>`, `String`, `Bytes`). Its errors are in doubt, as one that was sent may have
/// happened, unless the connection was refused. An error of this service is an [`OutcomeUnknown`](crate::OutcomeUnknown), or else
/// one of the client's own, after which nothing has happened.
///
/// Put what follows redirects above this layer. Below it, tower-http's is noticed over a client of hyper-util's: a call that was
/// redirected is in doubt, whatever was answered elsewhere. Put what decodes bodies above it too: over HTTP/2 a body is whole if it
/// has all of its `Content-Length`, or says itself that its end has come, and a decoder keeps neither.
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use onlyonce_client::{OnlyOnce, OutcomeUnknown};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let http = service_fn(async |request: Request<Full<Bytes>>| {
///     assert!(request.headers().contains_key("idempotency-key"));
///     Ok::<_, std::io::Error>(Response::new(Full::new(Bytes::from("paid"))))
/// });
/// let client = OnlyOnce::new().layer(http);
/// let call = Request::post("http://shop/payments").body(Full::from("100")).unwrap();
/// match client.oneshot(call).await {
///     Ok(answer) => assert_eq!(answer.status(), 200),
///     Err(error) => match error.downcast_ref::<OutcomeUnknown>() {
///         Some(unknown) => println!("keep this, and retry with it later: {}", unknown.key()),
///         None => println!("nothing has happened: {error}"),
///     },
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct OnlyOnceService<S> {
    once: OnlyOnce,
    inner: S,
}

impl<S> Layer<S> for OnlyOnce {
    type Service = OnlyOnceService<S>;

    fn layer(&self, inner: S) -> OnlyOnceService<S> {
        OnlyOnceService { once: self.clone(), inner }
    }
}

impl<S, B, R> Service<Request<B>> for OnlyOnceService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Clone + Default + Send + Sync + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<AnswerBody<R>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Each attempt waits for the client by itself.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let (once, inner) = (self.once.clone(), self.inner.clone());
        Box::pin(async move {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let key = once.key(&method, request.headers_mut())?;
            let mut way = ByService { inner, request };
            let Some(key) = key else {
                let answer = way.pass_on().await.map_err(Failed::cause)?;
                return Ok(answer.map(|body| Either::Right(Passed::unchecked(body))));
            };
            match once.run(&mut way, &key, |at| Target::about(at, &method, &path)).await {
                Ended::Answer(mut response) => {
                    response.extensions_mut().insert(CallKey(key));
                    Ok(response)
                }
                Ended::Failed(error) => Err(error.cause()),
                Ended::Unknown(unknown, cause) => Err(unknown.caused_by(cause.map(Failed::cause)).into()),
            }
        })
    }
}

struct ByService<S, B> {
    inner: S,
    request: Request<B>,
}

/// How far an attempt came.
enum Failed {
    NotReady(BoxError),
    /// Refused before there was a connection.
    Refused(BoxError),
    Called(BoxError),
}

impl Failed {
    fn cause(self) -> BoxError {
        match self {
            Self::NotReady(cause) | Self::Refused(cause) | Self::Called(cause) => cause,
        }
    }
}

impl<S, B, R> ByService<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Clone + Default,
{
    async fn pass_on(&mut self) -> Result<Response<R>, Failed> {
        self.exchange(self.request.clone()).await
    }

    async fn exchange(&mut self, mut request: Request<B>) -> Result<Response<R>, Failed> {
        // One connection that was refused may be the second: the first led to a redirect, which something below has followed.
        let connected = capture_connection(&mut request);
        let ready = poll_fn(|cx| self.inner.poll_ready(cx)).await;
        ready.map_err(|error| Failed::NotReady(error.into()))?;
        self.inner.call(request).await.map_err(|error| {
            let error = error.into();
            let never_sent = refused(&*error) && connected.connection_metadata().is_none();
            if never_sent { Failed::Refused(error) } else { Failed::Called(error) }
        })
    }
}

impl<S, B, R> Way for ByService<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Clone + Default + Send + Sync,
    R: Body<Data = Bytes> + Send,
    R::Error: Into<BoxError>,
{
    type Answer = Response<AnswerBody<R>>;
    type Error = Failed;

    fn repeatable(&self) -> bool {
        true
    }

    async fn send(&mut self) -> Result<Answered<Self::Answer>, Failed> {
        let response = self.pass_on().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let from = response.extensions().get::<RequestUri>().map(|uri| &uri.0);
        let elsewhere = from.filter(|uri| *uri != self.request.uri()).map(ToString::to_string);
        let (head, body) = response.into_parts();
        let (passed, is_read) = passed(&head, body, self.request.method());
        let read = if is_read { passed.read().await.map_err(Failed::Called)? } else { Read::Large(passed) };
        let (answer, body) = match read {
            Read::Whole(bytes) => (Either::Left(Full::new(bytes.clone())), Some(bytes.to_vec())),
            Read::Large(rest) => (Either::Right(rest), None),
        };
        Ok(Answered { answer: Response::from_parts(head, answer), elsewhere, status, headers, body })
    }

    fn meaning(failed: &Failed) -> Verdict {
        match failed {
            Failed::NotReady(_) | Failed::Refused(_) => Verdict::Later,
            Failed::Called(_) => Verdict::Doubt,
        }
    }

    async fn ask(&mut self, target: &Target) -> Option<(StatusCode, Vec<u8>)> {
        let mut uri = self.request.uri().clone().into_parts();
        uri.path_and_query = Some(format!("{}?{}", target.path, target.query).parse().ok()?);
        let mut question = Request::new(B::default());
        *question.method_mut() = Method::GET;
        *question.uri_mut() = Uri::from_parts(uri).ok()?;
        *question.headers_mut() = outcome::without_body(self.request.headers());
        *question.extensions_mut() = self.request.extensions().clone();
        let answer = self.exchange(question).await.ok()?;
        let (head, body) = answer.into_parts();
        match passed(&head, body, &Method::GET).0.read().await.ok()? {
            Read::Whole(bytes) => Some((head.status, bytes.to_vec())),
            Read::Large(_) => None,
        }
    }
}

/// The body, and whether it is to be read.
fn passed<R>(head: &http::response::Parts, body: R, method: &Method) -> (Passed<R>, bool)
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    let (status, version, headers) = (head.status, head.version, &head.headers);
    let head = Head { method, status, version, headers };
    let is_read = head.is_read(&body.size_hint());
    (Passed::new(body, &head, Ends::Said), is_read)
}

/// Whether a connection was refused, so that nothing was sent.
fn refused(error: &(dyn Error + 'static)) -> bool {
    let is = |io: &io::Error| io.kind() == io::ErrorKind::ConnectionRefused;
    error.downcast_ref().is_some_and(is) || error.source().is_some_and(refused)
}
