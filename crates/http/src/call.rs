//! One request with a key, from its body to its answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use onlyonce_core::seldom;
use onlyonce_core::token::Checked;
use onlyonce_core::{
    Fingerprint, Hash16, Intent, Key, Label, Operation, Order, Permit, RecordId, Refusal, Scope, Settings,
};
use tower_service::Service;

use crate::audience::Audience;
use crate::body::{self, InMemory, Pulled, RequestBody, ResponseBody};
use crate::exchange::Exchange;
use crate::headers;
use crate::key::{KeyFrom, from_sequence};
use crate::layer::Shared;
use crate::memory::{Account, BodyMemory, EvictionMark, Place, Reservation};
use crate::merged;
use crate::meter::{Meter, Tally};
use crate::options::MissingKey;
use crate::path;
use crate::problem::{Problem, ProblemKind};
use crate::routes::{self, Route};
use crate::scope::Caller;
use crate::stages::Next;
use crate::token::{Found, TokenRule};
use crate::whole::{BoxError, WholeBody};

/// A request that may have a key, and the service that would answer it.
pub(crate) struct Call<S> {
    pub(crate) route: Arc<Route>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) inner: S,
    pub(crate) parts: Parts,
    /// Whose it is, as far as that is known.
    pub(crate) caller: Caller,
}

/// Counts a refusal and answers with it.
pub(crate) fn refuse<R>(
    route: &Route,
    shared: &Shared,
    parts: &Parts,
    problem: Problem,
) -> Response<ResponseBody<R>> {
    let (label, is_pattern) = routes::label(route, parts);
    Meter::new(shared, &label, is_pattern).count(Tally::Problem(problem.name()), &**route.once.clock());
    problem.respond(Audience::of(&parts.headers), &shared.docs)
}

fn overloaded() -> Problem {
    Problem::new(ProblemKind::Overloaded).retry_after(Duration::from_secs(1))
}

/// A body that carries along what it takes in memory.
fn charged(body: InMemory, memory: Reservation) -> InMemory {
    struct Charged(Bytes, #[allow(dead_code, reason = "given back with the bytes")] Reservation);
    impl AsRef<[u8]> for Charged {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    InMemory { bytes: Bytes::from_owner(Charged(body.bytes, memory)), ..body }
}

/// A token that was deleted for this request.
#[derive(Debug, Clone)]
struct Deleted(String);

/// What is to be done with a request whose body was read.
enum Prepared {
    Run(Exchange, InMemory),
    /// It has no key and needs none, or it is protected already.
    Pass(InMemory),
    Refuse(Problem),
}

impl<S> Call<S> {
    /// Reads the body, and then says how the call runs to its end, which a client that goes away does not stop.
    pub(crate) async fn answer<B, R>(
        mut self: Box<Self>,
        body: B,
        early: Option<Key>,
    ) -> Next<
        impl Future<Output = Result<Response<ResponseBody<R>>, S::Error>> + Send + 'static,
        Result<Response<ResponseBody<R>>, S::Error>,
    >
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        match self.prepare(body, early).await {
            Prepared::Run(exchange, body) => {
                let span = tracing::info_span!("onlyonce", record = %exchange.id);
                Next::Run(exchange.run(self, body), span)
            }
            Prepared::Pass(body) => {
                let passed = Box::pin(self.begin(body, None)).await;
                Next::Answer(passed.map(|response| response.map(ResponseBody::passed)))
            }
            Prepared::Refuse(problem) => Next::Answer(Ok(self.refuse(problem))),
        }
    }

    /// Calls the service, which finds the permit of its attempt in the request, if it has one.
    #[allow(clippy::boxed_local, reason = "it is in a box, and is moved out of it only here")]
    pub(crate) fn begin<B>(self: Box<Self>, body: InMemory, permit: Option<Permit>) -> S::Future
    where
        S: Service<Request<RequestBody<B>>>,
    {
        let Self { mut inner, mut parts, .. } = *self;
        headers::announce(&mut parts.headers, body.trailers.as_deref());
        let mut request = Request::from_parts(parts, RequestBody::read(body));
        if let Some(permit) = permit {
            request.extensions_mut().insert(permit);
        }
        inner.call(request)
    }

    /// Everything that has to be known before anything may run.
    async fn prepare<B>(&mut self, body: B, early: Option<Key>) -> Prepared
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let (body, memory) = match self.read(body).await {
            Ok(read) => read,
            Err(problem) => return Prepared::Refuse(problem),
        };
        if let Some(rule) = self.route.options.token.clone() {
            // Boxed because it is rare, and would make every call larger.
            return Box::pin(self.prepare_token(&rule, body, memory)).await;
        }
        let key = match early.map_or_else(|| self.key_in(&body.bytes), |key| Ok(Some(key))) {
            Ok(Some(key)) => key,
            Ok(None) if self.route.options.missing_key == MissingKey::Pass => {
                Meter::unkeyed(&self.shared, &self.route);
                return Prepared::Pass(charged(body, memory));
            }
            Ok(None) => return Prepared::Refuse(Problem::key_missing(&self.route.options.key)),
            Err(problem) => return Prepared::Refuse(problem),
        };
        if let Err(why) = merged::check_key(&self.route.options.key, &self.parts, &body.bytes) {
            return Prepared::Refuse(Problem::new(ProblemKind::KeyInvalid).because(why));
        }
        let scope = match self.caller.take() {
            Ok(scope) => scope,
            Err(problem) => return Prepared::Refuse(problem),
        };
        let exchange = match self.fingerprint(&body.bytes) {
            Ok(fingerprint) => {
                let settings = Arc::clone(self.route.once.settings());
                self.exchange(key, &scope, fingerprint, settings, memory)
            }
            Err(problem) => return Prepared::Refuse(problem),
        };
        if self.is_run_already(&exchange) {
            return Prepared::Pass(charged(body, exchange.memory));
        }
        Prepared::Run(exchange, body)
    }

    /// Whether the layer is there twice, and the outer one runs this call: the inner one would wait for it for ever.
    fn is_run_already(&self, exchange: &Exchange) -> bool {
        let permit = self.parts.extensions.get::<Permit>();
        permit.is_some_and(|permit| permit.record_id() == exchange.id)
    }

    /// The same for a call that needs a token.
    async fn prepare_token(&mut self, rule: &TokenRule, body: InMemory, memory: Reservation) -> Prepared {
        let token = match rule.find(&self.parts, &body.bytes) {
            Found::Token(token) => token,
            Found::Nothing => return Prepared::Refuse(Problem::new(ProblemKind::TokenMissing)),
            Found::Unclear => return Prepared::Refuse(Problem::new(ProblemKind::TokenRefused)),
        };
        // Where the layer is there twice, the outer one has deleted it already.
        if self.parts.extensions.get::<Deleted>().is_some_and(|Deleted(used)| *used == token) {
            return Prepared::Pass(charged(body, memory));
        }
        let scope = match self.caller.take() {
            Ok(scope) => scope,
            Err(problem) => return Prepared::Refuse(problem),
        };
        let action = Operation::http(self.parts.method.as_str(), &path::of(&self.parts));
        let (ticket, expired) = match rule.tokens.check(&token, &scope, &action).await {
            Ok(Checked::Valid(ticket)) => (ticket, false),
            Ok(Checked::Expired(ticket)) => (ticket, true),
            Ok(Checked::Refused) => return Prepared::Refuse(Problem::new(ProblemKind::TokenRefused)),
            Ok(Checked::Gone) => return Prepared::Refuse(Problem::new(ProblemKind::Duplicate)),
            Ok(Checked::Deleted) => {
                let used = Deleted(token.into_owned());
                self.parts.extensions.insert(used);
                return Prepared::Pass(charged(body, memory));
            }
            Err(error) => {
                seldom!(error, error = &error as &dyn std::error::Error, "the token could not be checked");
                return Prepared::Refuse(Problem::of(Refusal::Store(error)));
            }
        };
        let settings = Arc::new(ticket.settings(self.route.once.settings()));
        match self.fingerprint(&body.bytes) {
            Ok(fingerprint) => {
                let exchange = self.exchange(ticket.key, &scope, fingerprint, settings, memory);
                if self.is_run_already(&exchange) {
                    return Prepared::Pass(charged(body, exchange.memory));
                }
                Prepared::Run(Exchange { expired, ..exchange }, body)
            }
            Err(problem) => Prepared::Refuse(problem),
        }
    }

    /// The body, and what it takes in memory.
    async fn read<B>(&mut self, body: B) -> Result<(InMemory, Reservation), Problem>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let options = &self.route.options;
        let clock = self.route.once.clock();
        let account = self.parts.extensions.get::<Account>().unwrap_or(&self.shared.account);
        let mark = self.parts.extensions.get::<EvictionMark>().copied();
        let mut body_memory = BodyMemory::of_request(account, mark);
        let body = WholeBody::wrapped(body, self.parts.version, &self.parts.headers);
        match body::read_all(body, options.max_request, options.request_patience, &**clock, &mut body_memory)
            .await
        {
            Ok(Pulled::Whole(body)) => {
                let mut memory = body_memory.into_reservation();
                if !memory.account().may_begin(self.place(memory.account())) {
                    return Err(overloaded());
                }
                // From now on it may run, and nothing may be taken away from it.
                memory.keep();
                Ok((body, memory))
            }
            Ok(Pulled::NoRoom(_)) => Err(overloaded()),
            Ok(Pulled::TooLarge(_)) => Err(Problem::new(ProblemKind::RequestTooLarge)
                .because(format_args!("the limit is {} bytes", options.max_request))),
            Ok(Pulled::TooSlow(_)) => Err(Problem::new(ProblemKind::RequestTimeout)),
            Err(error) => Err(Problem::new(ProblemKind::BodyInvalid).because(error)),
        }
    }

    fn key_in(&self, body: &[u8]) -> Result<Option<Key>, Problem> {
        let found = self.route.options.key.in_body(&self.parts.headers, body);
        found.map_err(|why| Problem::new(ProblemKind::KeyInvalid).because(why))
    }

    fn fingerprint(&self, body: &[u8]) -> Result<Fingerprint, Problem> {
        let of = &self.route.options.fingerprint;
        of.of(&self.parts, &path::of(&self.parts), body)
            .map_err(|why| Problem::new(ProblemKind::BodyInvalid).because(why))
    }

    fn exchange(
        &self,
        key: Key,
        scope: &Scope,
        fingerprint: Fingerprint,
        settings: Arc<Settings>,
        memory: Reservation,
    ) -> Exchange {
        let (method, path) = (self.parts.method.as_str(), path::of(&self.parts));
        let (route, is_pattern) = routes::label(&self.route, &self.parts);
        let clock = self.route.once.clock();
        let meter = Meter::new(&self.shared, &route, is_pattern).timed(self.shared.timings, &**clock);
        let askable = self.route.options.recover.as_ref().is_some_and(|hook| hook.is_for(&key));
        let label = Label { route, key: Hash16::of_key(&key), scope: Hash16::of_scope(scope) };
        Exchange {
            id: RecordId::of_http(scope, method, &path, &key),
            intent: Arc::new(Intent { fingerprint, label, settings }),
            echo: self.echo(),
            audience: Audience::of(&self.parts.headers),
            expired: false,
            increasing: self.increasing(scope),
            question: askable.then(|| Box::new((self.parts.clone(), key))),
            askable,
            route: Arc::clone(&self.route),
            shared: Arc::clone(&self.shared),
            meter,
            place: self.place(memory.account()),
            memory,
        }
    }

    /// The number that must be higher than all before, and whose it is.
    fn increasing(&self, scope: &Scope) -> Option<Box<(Scope, Operation, u64)>> {
        let (KeyFrom::Sequence(name), Order::Increasing) =
            (&self.route.options.key, self.route.options.order)
        else {
            return None;
        };
        let number = from_sequence(&self.parts.headers, name).ok().flatten()?;
        let operation = Operation::http(self.parts.method.as_str(), &path::of(&self.parts));
        Some(Box::new((scope.clone(), operation, number)))
    }

    fn place(&self, account: &Account) -> Place {
        account.place(&self.parts.method, self.parts.uri.path())
    }

    /// The key as the client wrote it, for the answer to repeat; keys from elsewhere than a header are not repeated.
    fn echo(&self) -> Option<HeaderValue> {
        match &self.route.options.key {
            KeyFrom::Header(name) | KeyFrom::Sequence(name) => self.parts.headers.get(name).cloned(),
            KeyFrom::Json(_) | KeyFrom::Query(_) | KeyFrom::Form(_) => None,
        }
    }

    fn refuse<R>(&self, problem: Problem) -> Response<ResponseBody<R>> {
        refuse(&self.route, &self.shared, &self.parts, problem)
    }
}
