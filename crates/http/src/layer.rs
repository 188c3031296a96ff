//! The layer and its builder.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Method;
use onlyonce_core::token::Tokens;
use onlyonce_core::{Idempotency, InputError};
use tower_layer::Layer;

use crate::endpoints::Ids;
use crate::memory::{Account, MemoryBudget};
use crate::meter::Timings;
use crate::options::Options;
use crate::problem::DOCS;
use crate::routes::{Route, Routes};
use crate::scope::ScopeFrom;
use crate::service::IdempotencyService;

/// Where a caller may ask what became of its call.
const OUTCOME_PATH: &str = "/_onlyonce/outcome";

/// Makes the writes of a service idempotent: add it with `.layer(...)` to an axum router, or wrap any tower service.
///
/// ```
/// use onlyonce_core::{Idempotency, MemoryStore};
/// use onlyonce_http::{IdempotencyLayer, MissingKey, Options, ScopeFrom};
///
/// let once = Idempotency::new(MemoryStore::new());
/// let simple = IdempotencyLayer::new(once.clone(), ScopeFrom::header("x-tenant"));
/// let strict = IdempotencyLayer::builder(once, ScopeFrom::header("x-tenant"))
///     .route("POST /payments", Options { missing_key: MissingKey::Reject, ..Options::default() })
///     .build()?;
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Debug, Clone)]
pub struct IdempotencyLayer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// Tells the layers of this process apart.
    pub(crate) number: u64,
    pub(crate) routes: Routes,
    pub(crate) scope: ScopeFrom,
    pub(crate) outcome_path: Option<Box<str>>,
    /// Tokens and the script for forms are given out.
    pub(crate) forms: bool,
    /// Who issues tokens for routes that do not say.
    pub(crate) tokens: Option<Tokens>,
    pub(crate) ids: Option<Ids>,
    pub(crate) docs: Box<str>,
    pub(crate) timings: Timings,
    /// What pays for requests that bring no account of their own.
    pub(crate) account: Account,
}

impl IdempotencyLayer {
    /// A layer with the default options: POST and PATCH with an `Idempotency-Key` are protected, all else is passed on.
    ///
    /// # Panics
    /// Never: the default options are valid.
    #[must_use]
    pub fn new(once: Idempotency, scope: ScopeFrom) -> Self {
        Self::builder(once, scope).build().expect("the default options are valid")
    }

    /// Starts a configured layer.
    pub fn builder(once: Idempotency, scope: ScopeFrom) -> LayerBuilder {
        LayerBuilder {
            once,
            scope,
            options: Options::default(),
            routes: Vec::new(),
            methods: vec![Method::POST, Method::PATCH],
            outcome_path: Some(OUTCOME_PATH.into()),
            tokens: None,
            ids: None,
            docs: DOCS.into(),
            timings: Timings::default(),
            memory: MemoryBudget::default(),
        }
    }
}

impl IdempotencyLayer {
    /// The engine that calls go through whose records have this label, with the settings of their route: for whoever
    /// [resolves](Idempotency::resolve) one, so that its answer is kept for as long as the route says.
    ///
    /// ```
    /// # use onlyonce_core::{Idempotency, MemoryStore, Settings};
    /// # use onlyonce_http::{IdempotencyLayer, Options, ScopeFrom};
    /// # use std::time::Duration;
    /// let month = Settings { retain: Duration::from_secs(30 * 86_400), ..Settings::default() };
    /// let once = Idempotency::new(MemoryStore::new());
    /// let layer = IdempotencyLayer::builder(once, ScopeFrom::nobody())
    ///     .route("POST /payments", Options { settings: Some(month.clone()), ..Options::default() })
    ///     .build()?;
    /// assert_eq!(layer.engine_of("POST /payments").settings().retain, month.retain);
    /// # Ok::<(), onlyonce_core::InputError>(())
    /// ```
    #[must_use]
    pub fn engine_of(&self, label: &str) -> Idempotency {
        let route = self.shared.routes.of_label(label);
        let Some(rule) = &route.options.token else { return route.once.clone() };
        // A record must outlive its token, which could else be used again.
        let outliving = rule.tokens.outlived(route.once.settings());
        route.once.with_settings(outliving).unwrap_or_else(|_| route.once.clone())
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(inner, Arc::clone(&self.shared))
    }
}

/// Sets up an [`IdempotencyLayer`].
#[derive(Debug)]
#[must_use = "nothing is protected before build() and .layer(...)"]
pub struct LayerBuilder {
    once: Idempotency,
    scope: ScopeFrom,
    options: Options,
    routes: Vec<(String, Options)>,
    methods: Vec<Method>,
    outcome_path: Option<Box<str>>,
    tokens: Option<Tokens>,
    ids: Option<Ids>,
    docs: Box<str>,
    timings: Timings,
    memory: MemoryBudget,
}

impl LayerBuilder {
    /// The options of requests that no [`route`](Self::route) matches.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// The options of requests that match a pattern such as `PUT /accounts/{id}`. Declaring a route also opts its method in.
    pub fn route(mut self, pattern: impl Into<String>, options: Options) -> Self {
        self.routes.push((pattern.into(), options));
        self
    }

    /// The methods that are protected everywhere (POST and PATCH).
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// Where a caller may ask what became of its call (`/_onlyonce/outcome`); `None` for nowhere.
    pub fn outcome_path(mut self, path: Option<&str>) -> Self {
        self.outcome_path = path.map(Into::into);
        self
    }

    /// Issues tokens also for routes that need none: as keys which the server chose, to be sent where the route finds its keys,
    /// for instance [`KeyFrom::Form`](crate::KeyFrom::Form).
    pub fn tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Gives ids out at `POST /_onlyonce/ids?count=` (it does not).
    ///
    /// Tokens (`POST /_onlyonce/tokens?method=&path=`) and the script for forms (`GET /_onlyonce/once.js`) are given out by
    /// themselves where a route needs tokens.
    pub fn ids(mut self, ids: Ids) -> Self {
        self.ids = Some(ids);
        self
    }

    /// The page that `Link: rel="describedby"` of problems points to; the name of the problem is appended as a fragment.
    pub fn docs(mut self, url: &str) -> Self {
        self.docs = url.into();
        self
    }

    /// Also measures how long requests take, in `onlyonce_request_seconds{route, result}`.
    pub fn timings(mut self, timings: Timings) -> Self {
        self.timings = timings;
        self
    }

    /// The memory for everything that is buffered (256 MiB): bodies of requests with a key, and their answers. A call for which there
    /// is no room is refused with 503 before it begins.
    ///
    /// A request with an [`Account`](crate::Account) in its extensions is paid from that instead.
    pub fn memory(mut self, budget: MemoryBudget) -> Self {
        self.memory = budget;
        self
    }

    /// The layer.
    ///
    /// # Errors
    /// If a pattern, a method, a limit or a setting can't be used; the message says which.
    pub fn build(self) -> Result<IdempotencyLayer, InputError> {
        let all = || std::iter::once(&self.options).chain(self.routes.iter().map(|(_, options)| options));
        let forms = self.tokens.is_some() || all().any(|options| options.token.is_some());
        let largest = all().map(|options| options.max_request.max(options.max_response)).max();
        let room = self.memory.ordinary();
        if largest.is_some_and(|largest| largest > room) {
            return Err(InputError::new(format!(
                "max_request and max_response must be at most {room} bytes, three quarters of the memory budget; make them smaller, or the budget larger"
            )));
        }
        let default = Route::new(&self.once, self.options, None)?;
        let mut routes = Routes::new(default, self.methods)?;
        let Self { once, scope, outcome_path, tokens, ids, docs, timings, memory, .. } = self;
        let account = memory.account();
        for (pattern, options) in self.routes {
            routes.declare(&pattern, &once, options)?;
        }
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let shared =
            Shared { number, routes, scope, outcome_path, forms, tokens, ids, docs, timings, account };
        Ok(IdempotencyLayer { shared: Arc::new(shared) })
    }
}
