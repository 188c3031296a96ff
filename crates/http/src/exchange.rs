//! The part of a call that nobody can stop: start, handler, settle, answer.

use std::any::Any;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::Either;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode, response};
use http_body::Body;
use onlyonce_core::{
    Admitted, Answer, Asking, Class, Cleared, ErrorKind, Finished, Intent, Key, Operation, Prior, RecordId,
    Recovery, Refusal, Running, Scope, Started, StoreError,
};
use tower_service::Service;

use crate::answer::{StoredAnswer, encode_whole};
use crate::audience::Audience;
use crate::body::{self, Read, RequestBody, ResponseBody};
use crate::call::Call;
use crate::classify::classify;
use crate::layer::Shared;
use crate::meter::{Meter, Tally};
use crate::options::{Question, StoreDown};
use crate::problem::{Problem, ProblemKind};
use crate::relayed::Relayed;
use crate::replay;
use crate::routes::Route;

const STORED: HeaderName = HeaderName::from_static("idempotency-stored");
const FAIL_OPEN: HeaderName = HeaderName::from_static("onlyonce-fail-open");

/// Everything about a call but its request and the service.
pub(crate) struct Exchange {
    pub(crate) id: RecordId,
    pub(crate) intent: Arc<Intent>,
    pub(crate) route: Arc<Route>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) meter: Meter,
    /// Who reads problems.
    pub(crate) audience: Audience,
    /// The time of its token is over: it may not run, but may have run before.
    pub(crate) expired: bool,
    /// Its number, if it must be higher than all before, and whose it is.
    pub(crate) increasing: Option<Box<(Scope, Operation, u64)>>,
    /// The key header to repeat in the answer.
    pub(crate) echo: Option<HeaderValue>,
    /// The request and its key, as the recovery hook gets them.
    pub(crate) question: Option<Box<(Parts, Key)>>,
}

/// What a handler's end means: how the call is to be ended, what is recorded of it, and what the client gets if that works.
struct Heard<R> {
    class: Class,
    record: Answer,
    reply: Result<Response<ResponseBody<R>>, Problem>,
}

impl<R> Heard<R> {
    /// Nobody knows how far the handler came.
    fn doubt() -> Self {
        let reply = Err(Problem::new(ProblemKind::HandlerFailed));
        Self { class: Class::Unknown, record: Answer::none(), reply }
    }

    /// What it means where nothing is ever in doubt, because what is not kept is undone.
    fn or_undone(self) -> Self {
        if self.class != Class::Unknown {
            return self;
        }
        let reply = self.reply.map_err(|_| Problem::new(ProblemKind::RolledBack));
        Self { class: Class::Release, record: Answer::none(), reply }
    }

    /// Whether the business said no: that is kept as the answer, and is no success.
    fn is_refusal(&self) -> bool {
        let failed = |status: StatusCode| status.is_client_error() || status.is_server_error();
        self.class == Class::Keep && self.reply.as_ref().is_ok_and(|response| failed(response.status()))
    }

    /// The answer broke off; what was seen of it is evidence.
    fn broken_off(parts: &response::Parts) -> Self {
        let relayed = parts.extensions.get::<Relayed>().is_some();
        let kind = if relayed { ProblemKind::UpstreamFailed } else { ProblemKind::HandlerFailed };
        let record = StoredAnswer::tombstone(parts.status, &parts.headers).encode();
        Self { class: Class::Unknown, record, reply: Err(Problem::new(kind)) }
    }
}

impl Exchange {
    /// From start to answer.
    #[allow(clippy::manual_async_fn, reason = "an async function would hold its arguments twice")]
    pub(crate) fn run<S, B, R>(
        mut self,
        call: Box<Call<S>>,
        body: Bytes,
    ) -> impl Future<Output = Result<Response<ResponseBody<R>>, S::Error>>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        R: Body<Data = Bytes>,
        R::Error: std::fmt::Display,
    {
        async move {
            if self.expired {
                return Ok(match Box::pin(self.route.once.prior(&self.id, &self.intent)).await {
                    Ok(Some(prior)) => self.prior(prior),
                    Ok(None) => self.refuse(Problem::new(ProblemKind::TokenExpired)),
                    Err(error) => self.store_failed(error),
                });
            }
            // What is rare is boxed, because it would make every call larger.
            let cleared = match self.route.once.start(&self.id, &self.intent).await {
                Ok(Started::Run(running)) => Ok(Cleared::Run(running)),
                Ok(Started::Prior(prior)) => Ok(Cleared::Prior(prior)),
                Ok(Started::Ask(asking)) => Box::pin(self.find_out(asking)).await,
                Err(error) if self.may_fail_open(&error) => {
                    tracing::error!(record = %self.id, error = &error as &dyn std::error::Error, "failing open: the call is not protected");
                    self.count(Tally::FailedOpen);
                    let mut response = Box::pin(call.begin(body, None)).await?.map(ResponseBody::passed);
                    response.headers_mut().insert(FAIL_OPEN, HeaderValue::from_static("true"));
                    return Ok(response);
                }
                Err(error) => Err(error),
            };
            let admitted = match cleared {
                Ok(Cleared::Run(running)) if self.increasing.is_none() => Ok(Admitted::Run(running)),
                Ok(Cleared::Run(running)) => Box::pin(self.admit(running)).await,
                Ok(Cleared::Prior(prior)) => return Ok(self.prior(prior)),
                Err(error) => Err(error),
            };
            match admitted {
                Ok(Admitted::Run(running)) => self.execute(running, call, body).await,
                Ok(Admitted::OutOfOrder { last }) => {
                    Ok(self.refuse(Problem::of(Refusal::OutOfOrder { last })))
                }
                Err(error) => Ok(self.store_failed(error)),
            }
        }
    }

    /// Lets a numbered call in if its number is high enough, and every other call.
    async fn admit(&self, running: Running) -> Result<Admitted, StoreError> {
        match self.increasing.as_deref() {
            None => Ok(Admitted::Run(running)),
            Some((scope, operation, number)) => {
                self.route.once.admit(running, scope, operation, *number).await
            }
        }
    }

    fn may_fail_open(&self, error: &StoreError) -> bool {
        let is_down = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Ambiguous);
        is_down && self.route.options.store_down == StoreDown::FailOpen
    }

    /// Asks the recovery hook about an attempt that ended without a word.
    async fn find_out(&mut self, asking: Asking) -> Result<Cleared, StoreError> {
        let found = match (&self.route.options.recover, self.question.take()) {
            (Some(hook), Some(question)) => {
                let (request, key) = *question;
                hook.ask(Question { request, key, permit: asking.permit().clone() }).await
            }
            _ => {
                tracing::error!(record = %self.id, "OnLapse::Ask needs Options::recover; the outcome stays unknown");
                Recovery::Unknown
            }
        };
        let found = match found {
            Recovery::Done(response) => {
                let (parts, body) = response.into_parts();
                Recovery::Done(self.whole(&parts, &body, None))
            }
            Recovery::NotDone => Recovery::NotDone,
            Recovery::Unknown => Recovery::Unknown,
        };
        asking.resolve(found).await
    }

    /// Runs the handler, and ends the call.
    #[allow(clippy::manual_async_fn, reason = "an async function would hold its arguments twice")]
    fn execute<S, B, R>(
        &self,
        mut running: Running,
        call: Box<Call<S>>,
        body: Bytes,
    ) -> impl Future<Output = Result<Response<ResponseBody<R>>, S::Error>>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        R: Body<Data = Bytes>,
        R::Error: std::fmt::Display,
    {
        async move {
            let permit = running.permit().clone();
            running.begun();
            // Around the handler and its body: both are user code that may panic.
            // In a box of its own: two small pieces of memory come faster than a large one.
            let handler = Box::pin(async move {
                match call.begin(body, Some(permit)).await {
                    Ok(response) => Ok(self.listen(response).await),
                    Err(error) => Err(error),
                }
            });
            let heard = AssertUnwindSafe(handler).catch_unwind().await;
            let (Heard { class, record, reply }, error) = self.conclude(heard, &mut running);
            let finished = running.end(class, record).await;
            match error {
                Some(error) => Err(error),
                None => Ok(self.reply(class, reply, finished)),
            }
        }
    }

    /// What the end of a handler means, however it ended.
    fn conclude<R, E>(
        &self,
        heard: Result<Result<Heard<R>, E>, Box<dyn Any + Send>>,
        running: &mut Running,
    ) -> (Heard<R>, Option<E>) {
        let (heard, error) = match heard {
            Ok(Ok(heard)) => (heard, None),
            // The service failed without an answer.
            Ok(Err(error)) => (Heard::doubt(), Some(error)),
            Err(_) => {
                tracing::error!(record = %self.id, "the handler panicked");
                (Heard::doubt(), None)
            }
        };
        let heard = if running.is_atomic() { heard.or_undone() } else { heard };
        if heard.is_refusal() {
            running.refused();
        }
        (heard, error)
    }

    /// Reads the body of an answer, unless it is a stream, and weighs what was heard.
    fn listen<R>(&self, response: Response<R>) -> impl Future<Output = Heard<R>>
    where
        R: Body<Data = Bytes>,
        R::Error: std::fmt::Display,
    {
        let (parts, body) = response.into_parts();
        let options = &self.route.options;
        let (limit, patience) = (options.max_response, options.response_patience);
        let read = if is_stream(&parts.headers) {
            Either::Left(ready(Ok(Read::Stream(ResponseBody::passed(body)))))
        } else {
            Either::Right(body::read(body, limit, patience, &**self.route.once.clock()))
        };
        async move {
            match read.await {
                Ok(Read::Whole { bytes, trailers }) => {
                    let record = self.whole(&parts, &bytes, trailers.as_ref());
                    self.weigh(parts, ResponseBody::full(bytes, trailers), record)
                }
                Ok(Read::Stream(body)) => self.streamed(parts, body),
                Err(error) => {
                    tracing::error!(record = %self.id, %error, "the answer broke off; the outcome is unknown");
                    Heard::broken_off(&parts)
                }
            }
        }
    }

    fn streamed<R>(&self, parts: response::Parts, body: ResponseBody<R>) -> Heard<R> {
        let record = StoredAnswer::tombstone(parts.status, &parts.headers).encode();
        self.weigh(parts, body, record)
    }

    fn weigh<R>(&self, parts: response::Parts, body: ResponseBody<R>, record: Answer) -> Heard<R> {
        let by_status = || classify(parts.status, &parts.headers, self.route.options.on_500);
        let class = parts.extensions.get::<Class>().copied().unwrap_or_else(by_status);
        Heard { class, record, reply: Ok(Response::from_parts(parts, body)) }
    }

    /// What the client gets, now that the call has ended.
    fn reply<R>(
        &self,
        class: Class,
        reply: Result<Response<ResponseBody<R>>, Problem>,
        finished: Result<Finished, StoreError>,
    ) -> Response<ResponseBody<R>> {
        let stored = match finished {
            Ok(Finished::Stored) => true,
            Ok(Finished::Pending) => false,
            Ok(Finished::Superseded(prior)) => return self.prior(prior),
            Err(error) => return self.store_failed(error),
        };
        self.count(class.into());
        let mut response = match reply {
            Ok(response) => response,
            Err(problem) => return problem.about(self.id).respond(self.audience, &self.shared.docs),
        };
        // They are ours to say; a service of the same kind behind us spoke of its own records.
        for name in [&STORED, &FAIL_OPEN] {
            response.headers_mut().remove(name);
        }
        let kept_for = (stored && class == Class::Keep).then_some(self.intent.settings.retain);
        replay::mark(response.headers_mut(), self.echo.clone(), kept_for, &**self.route.once.clock());
        if !stored {
            response.headers_mut().insert(STORED, HeaderValue::from_static("false"));
        }
        response
    }

    fn whole(&self, parts: &response::Parts, bytes: &Bytes, trailers: Option<&HeaderMap>) -> Answer {
        let headers = self.route.options.headers.select(&parts.headers);
        let trailers = || trailers.into_iter().flat_map(HeaderMap::iter);
        let answer = encode_whole(parts.status, || headers.iter(), bytes, trailers);
        if answer.0.len() > self.intent.settings.max_answer {
            // A recovered answer is too large, or the headers alone are beyond all reason: it is kept that it happened.
            return StoredAnswer::tombstone(parts.status, &parts.headers).encode();
        }
        answer
    }

    fn prior<R>(&self, prior: Prior) -> Response<ResponseBody<R>> {
        let refusal = match prior {
            Prior::Refused(refusal) => refusal,
            Prior::Replay(stored) => match StoredAnswer::decode(stored.answer) {
                Ok(StoredAnswer::Whole { response, trailers }) => {
                    self.count(Tally::Replayed);
                    let clock = &**self.route.once.clock();
                    return replay::answer(response, trailers, self.echo.clone(), stored.expires_in, clock);
                }
                Ok(StoredAnswer::Tombstone { status, location }) => {
                    return self.refuse(Problem::not_retained(status, location));
                }
                Err(error) => {
                    tracing::error!(record = %self.id, %error, "a stored answer can't be read");
                    Refusal::Unreadable
                }
            },
        };
        if matches!(refusal, Refusal::Unreadable) {
            tracing::error!(record = %self.id, "the record was written in a way that this release does not know");
        }
        self.refuse(Problem::of(refusal))
    }

    fn store_failed<R>(&self, error: StoreError) -> Response<ResponseBody<R>> {
        tracing::error!(record = %self.id, error = &error as &dyn std::error::Error, "the store failed");
        self.refuse(Problem::of(Refusal::Store(error)))
    }

    fn count(&self, what: Tally) {
        self.meter.count(what, &**self.route.once.clock());
    }

    fn refuse<R>(&self, problem: Problem) -> Response<ResponseBody<R>> {
        self.count(Tally::Problem(problem.name()));
        problem.about(self.id).respond(self.audience, &self.shared.docs)
    }
}

fn is_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    content_type.starts_with("text/event-stream") || content_type.starts_with("application/grpc")
}
