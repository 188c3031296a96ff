//! How the requests of a route are treated.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use onlyonce_core::{InputError, Key, Order, Permit, Recovery, Settings};

use crate::classify::On500;
use crate::fingerprint::FingerprintOf;
use crate::headers::StoredHeaders;
use crate::key::{Early, KeyFrom};
use crate::token::TokenRule;

/// What happens to a request without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MissingKey {
    /// It is passed on, unprotected.
    #[default]
    Pass,
    /// It is refused with 400.
    Reject,
}

/// What happens when the store does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StoreDown {
    /// 503; the handler is not called.
    #[default]
    Refuse,
    /// The handler is called unprotected; the answer is marked with `Onlyonce-Fail-Open: true`, and counted.
    FailOpen,
}

/// How the requests of a route are treated. Start from [`Options::default`] and change what differs.
///
/// ```
/// use onlyonce_http::{MissingKey, On500, Options};
/// let payments = Options { missing_key: MissingKey::Reject, on_500: On500::Release, ..Options::default() };
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the key comes from (the `Idempotency-Key` header).
    pub key: KeyFrom,
    /// Calls need a one-time token instead of a key, and are refused without one (no token is needed). `key` and `missing_key`
    /// then do not matter.
    pub token: Option<TokenRule>,
    /// For [`KeyFrom::Sequence`]: in which order numbers may come (in any).
    pub order: Order,
    /// What happens without one (it passes).
    pub missing_key: MissingKey,
    /// What makes two requests the same (everything).
    pub fingerprint: FingerprintOf,
    /// What a 500 means (unknown).
    pub on_500: On500,
    /// What happens when the store does not answer (503).
    pub store_down: StoreDown,
    /// The largest request body, in bytes (1 MiB).
    pub max_request: usize,
    /// How long a request body may take to come (30 s).
    pub request_patience: Duration,
    /// The largest response body that is stored, in bytes (1 MiB).
    pub max_response: usize,
    /// How long a response body may take before it counts as a stream (5 s): it is held back for so long, to be stored whole. Zero
    /// for routes that stream whatever they answer: it is passed on as it comes, and not stored.
    pub response_patience: Duration,
    /// Which response headers are stored.
    pub headers: StoredHeaders,
    /// Leases, retention, waiting and mode, all of them; `None` for those of the engine. To change one, start from the engine's:
    /// `Settings { wait, ..(**once.settings()).clone() }`. `max_response` decides on the answer's size.
    pub settings: Option<Settings>,
    /// For `OnLapse::Ask`: how to find out whether an attempt that ended without a word happened.
    pub recover: Option<Recover>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            key: KeyFrom::default(),
            token: None,
            order: Order::default(),
            missing_key: MissingKey::default(),
            fingerprint: FingerprintOf::default(),
            on_500: On500::default(),
            store_down: StoreDown::default(),
            max_request: 1 << 20,
            request_patience: Duration::from_secs(30),
            max_response: 1 << 20,
            response_patience: Duration::from_secs(5),
            headers: StoredHeaders::default(),
            settings: None,
            recover: None,
        }
    }
}

/// What is stored beside the body: generous for any reasonable set of headers.
const HEADER_ROOM: usize = 64 << 10;

impl Options {
    pub(crate) fn validate(&self) -> Result<(), InputError> {
        self.key.validate()?;
        self.fingerprint.validate()?;
        for (name, limit) in [("max_request", self.max_request), ("max_response", self.max_response)] {
            if limit == 0 {
                return Err(InputError::new(format!("{name} must be at least 1 byte")));
            }
        }
        let patience = Duration::from_millis(1)..=Duration::from_secs(3600);
        if !patience.contains(&self.request_patience) {
            return Err(InputError::new("request_patience must be between 1 ms and 1 h"));
        }
        if self.response_patience > *patience.end() {
            return Err(InputError::new("response_patience must be at most 1 h"));
        }
        Ok(())
    }

    /// The key, as far as it can be had before the body is read.
    pub(crate) fn early(&self, parts: &Parts) -> Result<Early, InputError> {
        match self.token {
            Some(_) => Ok(Early::InBody),
            None => self.key.early(&parts.headers, parts.uri.query()),
        }
    }

    /// The settings for the engine: they must leave room for the headers beside the largest body.
    pub(crate) fn engine_settings(&self, default: &Settings) -> Settings {
        let max_answer = self.max_response.saturating_add(HEADER_ROOM);
        Settings { max_answer, ..self.settings.as_ref().unwrap_or(default).clone() }
    }
}

/// A retry that asks what became of an earlier attempt.
#[derive(Debug)]
pub struct Question {
    /// The retry, without its body.
    pub request: Parts,
    /// Its key.
    pub key: Key,
    /// The permission under which an answer "not done" would run.
    pub permit: Permit,
}

/// An extension of the answer that a [`Recover`] found: it is not there whole. It is kept that it happened, and no more; retries get
/// 409 `response-not-retained`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotRetained;

type Found = Pin<Box<dyn Future<Output = Recovery<Response<Bytes>>> + Send>>;

/// Finds out whether an attempt that ended without a word happened. "Not done" must mean that it can no longer happen.
///
/// ```
/// use onlyonce_core::Recovery;
/// use onlyonce_http::Recover;
/// let hook = Recover::new(|question| async move {
///     match find_payment(question.key.as_str()).await {
///         Some(receipt) => Recovery::Done(http::Response::new(receipt.into())),
///         None => Recovery::Unknown,
///     }
/// });
/// # async fn find_payment(_: &str) -> Option<String> { None }
/// ```
#[derive(Clone)]
pub struct Recover {
    ask: Arc<dyn Fn(Question) -> Found + Send + Sync>,
    only_for: Arc<dyn Fn(&Key) -> bool + Send + Sync>,
}

impl Recover {
    /// Asks with a function of yours.
    pub fn new<F>(ask: impl Fn(Question) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Recovery<Response<Bytes>>> + Send + 'static,
    {
        Self { ask: Arc::new(move |question| Box::pin(ask(question))), only_for: Arc::new(|_| true) }
    }

    /// Asks about calls with these keys only. Others stay unknown until a person decides, and their callers are told so.
    #[must_use]
    pub fn only_for(mut self, keys: impl Fn(&Key) -> bool + Send + Sync + 'static) -> Self {
        self.only_for = Arc::new(keys);
        self
    }

    pub(crate) fn is_for(&self, key: &Key) -> bool {
        (self.only_for)(key)
    }

    pub(crate) fn ask(&self, question: Question) -> Found {
        (self.ask)(question)
    }
}

impl fmt::Debug for Recover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recover(..)")
    }
}
