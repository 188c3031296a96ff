//! Setting up the middleware.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method};
use onlyonce_core::{Clock, InputError, SystemClock};
use onlyonce_id::Prefix;

use crate::allowance::Allowance;
use crate::call::OnlyOnce;

/// Whether the server is asked what became of a call that is in doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutcomeQuery {
    /// At this path. A server that does not know it answers 404, and that is that.
    At(String),
    /// Never.
    Off,
}

/// How calls are treated; see the setters for the defaults.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) header: HeaderName,
    pub(crate) methods: Vec<Method>,
    pub(crate) prefix: Option<Prefix>,
    pub(crate) attempts: u32,
    pub(crate) attempt_timeout: Duration,
    pub(crate) budget: Duration,
    pub(crate) base: Duration,
    pub(crate) most: Duration,
    pub(crate) outcome: OutcomeQuery,
}

/// Sets up an [`OnlyOnce`].
///
/// ```
/// use onlyonce_client::OnlyOnce;
/// use std::time::Duration;
/// let patient = OnlyOnce::builder().app("billing").budget(Duration::from_secs(300)).attempts(20).build()?;
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Debug)]
#[must_use = "it does nothing before build()"]
pub struct Builder {
    policy: Policy,
    app: Option<Box<str>>,
    clock: Arc<dyn Clock>,
    reserve: u32,
    per_second: u32,
}

impl Builder {
    pub(crate) fn new() -> Self {
        let policy = Policy {
            header: HeaderName::from_static("idempotency-key"),
            methods: vec![Method::POST, Method::PATCH],
            prefix: None,
            attempts: 8,
            attempt_timeout: Duration::from_secs(10),
            budget: Duration::from_secs(60),
            base: Duration::from_millis(100),
            most: Duration::from_secs(5),
            outcome: OutcomeQuery::At("/_onlyonce/outcome".into()),
        };
        Self { policy, app: None, clock: Arc::new(SystemClock), reserve: 500, per_second: 10 }
    }

    /// The header that carries the key (`Idempotency-Key`).
    pub fn header(mut self, name: HeaderName) -> Self {
        self.policy.header = name;
        self
    }

    /// The methods whose calls get a key and safe retries (POST and PATCH). Others are passed on, unless they have a key.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.policy.methods = methods.into_iter().collect();
        self
    }

    /// Puts this name before every key: `billing_01h4…`, so that a server's operator sees whose it is.
    pub fn app(mut self, name: impl Into<Box<str>>) -> Self {
        self.app = Some(name.into());
        self
    }

    /// How often a call is sent at most (8).
    pub fn attempts(mut self, most: u32) -> Self {
        self.policy.attempts = most;
        self
    }

    /// How long one attempt may take (10 s).
    pub fn attempt_timeout(mut self, span: Duration) -> Self {
        self.policy.attempt_timeout = span;
        self
    }

    /// How long a call may take with all its attempts and pauses (60 s). No attempt is begun later.
    pub fn budget(mut self, span: Duration) -> Self {
        self.policy.budget = span;
        self
    }

    /// The bound of the first pause, which doubles (100 ms), and the longest (5 s). What the server asks for by `Retry-After`
    /// comes on top.
    pub fn pauses(mut self, first: Duration, longest: Duration) -> Self {
        (self.policy.base, self.policy.most) = (first, longest);
        self
    }

    /// How many retries all calls may make together: at most `reserve` at once (500), of which so many come back in a second
    /// (10), and one with every five calls. Beyond that a call that fails is not retried.
    pub fn retry_allowance(mut self, reserve: u32, per_second: u32) -> Self {
        (self.reserve, self.per_second) = (reserve, per_second);
        self
    }

    /// Where the server is asked what became of a call in doubt (`/_onlyonce/outcome`).
    pub fn outcome_query(mut self, query: OutcomeQuery) -> Self {
        self.policy.outcome = query;
        self
    }

    /// Takes time from `clock`.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The middleware.
    ///
    /// # Errors
    /// If the name of the app can't be a prefix, or there is no attempt or no time.
    pub fn build(self) -> Result<OnlyOnce, InputError> {
        let mut policy = self.policy;
        policy.prefix = self.app.map(Prefix::new).transpose()?;
        if policy.attempts == 0 || policy.attempt_timeout.is_zero() || policy.budget.is_zero() {
            return Err(InputError::new("attempts, attempt_timeout and budget must be more than nothing"));
        }
        let allowance = Allowance::new(self.reserve, self.per_second, self.clock.now());
        Ok(OnlyOnce::assemble(policy, self.clock, allowance))
    }
}
