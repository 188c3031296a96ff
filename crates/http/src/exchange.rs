//! The part of a call that nobody can stop: start, handler, settle, answer.

use std::any::Any;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::Either;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode, response};
use http_body::Body;
use onlyonce_core::seldom;
use onlyonce_core::{
    Admitted, Answer, Asking, Class, Cleared, ErrorKind, Finished, Intent, Key, Mode, OnLapse, Operation,
    Prior, RecordId, Recovery, Refusal, Running, Scope, Started, StoreError,
};
use tower_service::Service;

use crate::answer::{StoredAnswer, encode_whole};
use crate::audience::Audience;
use crate::body::{self, InMemory, Pieces, Read, RequestBody, ResponseBody};
use crate::call::Call;
use crate::classify::classify;
use crate::headers::{self, Selected};
use crate::layer::Shared;
use crate::memory::{BodyMemory, Place, Reservation};
use crate::meter::{Meter, Tally};
use crate::options::{NotRetained, Question, StoreDown};
use crate::problem::{Doubt, Problem, ProblemKind};
use crate::relayed::Relayed;
use crate::replay;
use crate::routes::Route;
use crate::unsettled::{Open, Unsettled};
use crate::whole::{BoxError, WholeBody};

const STORED: HeaderName = HeaderName::from_static("idempotency-stored");
const FAIL_OPEN: HeaderName = HeaderName::from_static("onlyonce-fail-open");

/// How long the end of an answer without a body is waited for at least.
const BODILESS: Duration = Duration::from_secs(5);

/// Everything about a call but its request and the service.
pub(crate) struct Exchange {
    pub(crate) id: RecordId,
    pub(crate) intent: Arc<Intent>,
    pub(crate) route: Arc<Route>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) meter: Meter,
    /// What its request takes in memory.
    pub(crate) memory: Reservation,
    /// Where the size of its answer is noted.
    pub(crate) place: Place,
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
    /// Whether the hook can be asked about it.
    pub(crate) askable: bool,
}

/// What a handler's end means: how the call is to be ended, what is recorded of it, and what the client gets if that works.
struct Heard<R> {
    class: Class,
    record: Answer,
    reply: Result<Response<ResponseBody<R>>, Problem>,
    end: End,
}

/// Whether the end of an answer was seen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Seen,
    /// It is passed on as it comes.
    Open,
}

impl<R> Heard<R> {
    /// Nobody knows how far the handler came.
    fn doubt() -> Self {
        let reply = Err(Problem::new(ProblemKind::HandlerFailed));
        Self { class: Class::Unknown, record: Answer::none(), reply, end: End::Seen }
    }

    /// What it means where nothing is ever in doubt, because what is not kept is undone.
    fn or_undone(self) -> Self {
        if self.class != Class::Unknown {
            return self;
        }
        let reply = self.reply.map_err(|_| Problem::new(ProblemKind::RolledBack));
        Self { class: Class::Release, record: Answer::none(), reply, end: self.end }
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
        Self { class: Class::Unknown, record, reply: Err(Problem::new(kind)), end: End::Seen }
    }
}

impl Exchange {
    /// From start to answer.
    #[allow(clippy::manual_async_fn, reason = "an async function would hold its arguments twice")]
    pub(crate) fn run<S, B, R>(
        mut self,
        call: Box<Call<S>>,
        body: InMemory,
    ) -> impl Future<Output = Result<Response<ResponseBody<R>>, S::Error>>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
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
                    seldom!(error, record = %self.id, error = &error as &dyn std::error::Error, "failing open: the call is not protected");
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
        let is_down =
            matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Ambiguous | ErrorKind::Rejected);
        is_down && self.route.options.store_down == StoreDown::FailOpen
    }

    /// Asks the recovery hook about an attempt that ended without a word.
    async fn find_out(&mut self, asking: Asking) -> Result<Cleared, StoreError> {
        let found = match (&self.route.options.recover, self.question.take()) {
            (Some(hook), Some(question)) => {
                let (request, key) = *question;
                hook.ask(Question { request, key, permit: asking.permit().clone() }).await
            }
            (Some(_), None) => Recovery::Unknown,
            (None, _) => {
                tracing::error!(record = %self.id, "OnLapse::Ask needs Options::recover; the outcome stays unknown");
                Recovery::Unknown
            }
        };
        let found = match found {
            Recovery::Done(response) => {
                let (parts, body) = response.into_parts();
                Recovery::Done(if parts.extensions.get::<NotRetained>().is_some() {
                    StoredAnswer::tombstone(parts.status, &parts.headers).encode()
                } else {
                    self.whole(&parts, &InMemory { bytes: body, trailers: None })
                })
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
        body: InMemory,
    ) -> impl Future<Output = Result<Response<ResponseBody<R>>, S::Error>>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
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
            let (Heard { class, record, reply, end }, error) = self.conclude(heard, &mut running);
            let reply = match reply {
                // What ends together with its effect ends here: the rest of its answer changes nothing.
                Ok(response) if end == End::Open && !running.is_atomic() => {
                    return Ok(self.relay(response, running, class, record));
                }
                reply => reply,
            };
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
        R::Error: Into<BoxError>,
    {
        let (mut parts, body) = response.into_parts();
        let options = &self.route.options;
        let (limit, mut patience) = (options.max_response, options.response_patience);
        // A caller of HTTP/1 takes an answer without a body for whole when it has the head: so that is held back until its end is seen.
        let is_bodiless = has_no_body(&parts);
        if is_bodiless {
            patience = patience.max(BODILESS);
        }
        let body = if parts.extensions.get::<Relayed>().is_some() {
            WholeBody::checked(body, &parts.headers)
        } else {
            WholeBody::wrapped(body, parts.version, &parts.headers)
        };
        let read = if !is_bodiless && (is_stream(&parts.headers) || patience.is_zero()) {
            Either::Left(ready(Ok(Read::Stream(ResponseBody::stream(Pieces::default(), Box::pin(body))))))
        } else {
            let body_memory = BodyMemory::of_answer(self.memory.account(), self.place);
            Either::Right(body::read(body, limit, patience, &**self.route.once.clock(), body_memory))
        };
        async move {
            match read.await {
                Ok(Read::Whole(body, reserved)) => {
                    headers::announce(&mut parts.headers, body.trailers.as_deref());
                    let record = self.whole(&parts, &body);
                    self.weigh(parts, ResponseBody::full(body).holding(reserved), record, End::Seen)
                }
                Ok(Read::Stream(body)) if is_bodiless && !body.is_end_stream() => {
                    seldom!(error, record = %self.id, "the answer has no body and does not end; the outcome is unknown");
                    Heard::broken_off(&parts)
                }
                Ok(Read::Stream(body)) => {
                    let record = StoredAnswer::tombstone(parts.status, &parts.headers).encode();
                    let end = if body.is_end_stream() { End::Seen } else { End::Open };
                    self.weigh(parts, body, record, end)
                }
                Err(error) => {
                    seldom!(error, record = %self.id, %error, "the answer broke off; the outcome is unknown");
                    Heard::broken_off(&parts)
                }
            }
        }
    }

    fn weigh<R>(&self, parts: response::Parts, body: ResponseBody<R>, record: Answer, end: End) -> Heard<R> {
        let by_status = || classify(parts.status, &parts.headers, self.route.options.on_500);
        let class = parts.extensions.get::<Class>().copied().unwrap_or_else(by_status);
        if let Some(kind) = parts.extensions.get::<ProblemKind>() {
            let record = StoredAnswer::tombstone(parts.status, &parts.headers).encode();
            return Heard { class, record, reply: Err(Problem::of_service(*kind)), end };
        }
        Heard { class, record, reply: Ok(Response::from_parts(parts, body)), end }
    }

    /// Passes an answer on as it comes; the call ends with it. Nothing is said of its record: whether there will be one is not known.
    fn relay<R>(
        &self,
        response: Response<ResponseBody<R>>,
        running: Running,
        class: Class,
        record: Answer,
    ) -> Response<ResponseBody<R>>
    where
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let (id, meter, route) = (self.id, self.meter.clone(), Arc::clone(&self.route));
        let call = Unsettled::new(Open { running, class, record, id, meter, route });
        self.mark(response, None).map(|mut body| {
            body.for_reader();
            body.ending(call)
        })
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
            Err(problem) => return self.tell(problem),
        };
        let kept_for = (stored && class == Class::Keep).then_some(self.intent.settings.retain);
        let is_replayed = kept_for.is_some() && self.intent.settings.mode == Mode::Replay;
        if is_replayed && !response.body().may_wait() {
            return self.tell(self.come_back());
        }
        response.body_mut().for_reader();
        let mut response = self.mark(response, kept_for);
        if !stored {
            response.headers_mut().insert(STORED, HeaderValue::from_static("false"));
        }
        response
    }

    /// The answer is kept, and there is no room to hold it for its reader: a retry gets it.
    fn come_back(&self) -> Problem {
        Problem::new(ProblemKind::InProgress)
            .because("the call is done, and there is no memory for its answer at the moment; a retry gets it")
            .retry_after(Duration::from_secs(1))
    }

    /// A first answer with our own words in its head.
    fn mark<R>(
        &self,
        mut response: Response<ResponseBody<R>>,
        kept_for: Option<Duration>,
    ) -> Response<ResponseBody<R>> {
        // They are ours to say; a service of the same kind behind us spoke of its own records.
        for name in [&STORED, &FAIL_OPEN] {
            response.headers_mut().remove(name);
        }
        replay::mark(response.headers_mut(), self.echo.clone(), kept_for, &**self.route.once.clock());
        response
    }

    fn whole(&self, parts: &response::Parts, body: &InMemory) -> Answer {
        let rules = &self.route.options.headers;
        let headers = rules.select(&parts.headers);
        let trailers = body.trailers.as_deref().map(|trailers| rules.select(trailers));
        let trailers = || trailers.iter().flat_map(Selected::iter);
        let answer = encode_whole(parts.status, || headers.iter(), &body.bytes, trailers);
        if answer.0.len() > self.intent.settings.max_answer {
            // A recovered answer is too large, or the headers alone are beyond all reason: it is kept that it happened.
            return StoredAnswer::tombstone(parts.status, &parts.headers).encode();
        }
        answer
    }

    fn prior<R>(&self, prior: Prior) -> Response<ResponseBody<R>> {
        let refusal = match prior {
            // It was to be kept, and the store did not take it.
            Prior::Refused(Refusal::Duplicate) if self.intent.settings.mode == Mode::Replay => {
                return self.refuse(Problem::new(ProblemKind::ResponseNotRetained));
            }
            Prior::Refused(refusal) => refusal,
            Prior::Replay(stored) => match StoredAnswer::decode(stored.answer) {
                Ok(StoredAnswer::Whole { response, trailers }) => {
                    let Some(reserved) = self.memory.account().take(response.body().len()) else {
                        return self.refuse(
                            Problem::new(ProblemKind::Overloaded).retry_after(Duration::from_secs(1)),
                        );
                    };
                    self.count(Tally::Replayed);
                    let clock = &**self.route.once.clock();
                    let replay =
                        replay::answer(response, trailers, self.echo.clone(), stored.expires_in, clock);
                    let mut replay = replay.map(|body| body.holding(reserved));
                    replay.body_mut().for_reader();
                    return replay;
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
        seldom!(error, record = %self.id, error = &error as &dyn std::error::Error, "the store failed");
        self.refuse(Problem::of(Refusal::Store(error)))
    }

    fn count(&self, what: Tally) {
        self.meter.count(what, &**self.route.once.clock());
    }

    fn refuse<R>(&self, problem: Problem) -> Response<ResponseBody<R>> {
        self.count(Tally::Problem(problem.name()));
        self.tell(problem)
    }

    fn tell<R>(&self, problem: Problem) -> Response<ResponseBody<R>> {
        problem.in_doubt(self.doubt()).about(self.id).respond(self.audience, &self.shared.docs)
    }

    /// What a retry of this call leads to while its outcome is unknown.
    fn doubt(&self) -> Doubt {
        match self.intent.settings.on_lapse {
            // A call that may no longer run is only looked up.
            _ if self.expired => Doubt::Hold,
            OnLapse::Hold => Doubt::Hold,
            OnLapse::Rerun => Doubt::Rerun,
            OnLapse::Ask { after } if self.askable => Doubt::Ask(after),
            OnLapse::Ask { .. } => Doubt::Hold,
        }
    }
}

/// Whether a caller of HTTP/1 has all of an answer with its head.
fn has_no_body(parts: &response::Parts) -> bool {
    let empty = parts.headers.get(CONTENT_LENGTH).is_some_and(|length| length == "0");
    empty || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

fn is_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    content_type.starts_with("text/event-stream") || content_type.starts_with("application/grpc")
}
