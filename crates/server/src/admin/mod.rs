//! The admin listener: health, metrics, and a JSON API to inspect and repair records.

mod api;
mod audit;
mod events;
mod health;
mod listener;
mod look;
mod metrics;
mod problem;
mod repair;
mod search;
mod store;
mod token;
mod unresolved;
mod view;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use onlyonce::{Idempotency, Inspect};
use parking_lot::RwLock;
use tokio::net::TcpListener;
use tokio::sync::{broadcast, watch};

pub(crate) use self::audit::Audit;
use self::events::Event;
use self::health::Readiness;
use self::listener::Listener;
use self::look::Look;
pub(crate) use self::metrics::keep_up;
use self::problem::AdminProblem;
pub(crate) use self::repair::{Deed, Repair, Unrepaired};
pub(crate) use self::search::{IdWord, NotOne, Unlisted, Words, several};
pub(crate) use self::store::Timed;
use self::token::Token;
pub(crate) use self::token::{check as check_token, check_file as check_token_file};
pub(crate) use self::unresolved::watch;
use crate::config::Config;
use crate::failure::Failure;
use crate::gateway::scope::ScopeRule;
use crate::gateway::serve::Server;
use crate::gateway::{Gate, Places};
use crate::stores;

pub(crate) use view::{Detail, Listing, Outcome, RecordView, Resolve, StateName};

/// How many connections there may be.
const CONNECTIONS: usize = 64;

/// What the admin API works on.
#[derive(Debug)]
pub(crate) struct Admin {
    store: Arc<dyn Inspect>,
    once: Idempotency,
    gate: Arc<Gate>,
    events: broadcast::Sender<Event>,
    metrics: metrics::Handle,
    readiness: Readiness,
    look: Look,
    /// What a reload changes.
    now: RwLock<Now>,
}

#[derive(Debug)]
struct Now {
    config: String,
    scope: Arc<ScopeRule>,
    token: Arc<Token>,
    audit: Arc<Audit>,
}

impl Now {
    /// Reads the token and opens the audit log, which may have been rotated.
    fn of(config: &Config) -> Result<Self, Failure> {
        let beside = |name: &str| stores::beside(&config.store, name);
        let token = match (&config.admin, &config.admin_token) {
            (None, _) => Token::nobody(),
            (Some(_), Some(token)) => Token::given(token),
            (Some(_), None) => {
                Token::in_file(config.admin_token_file.clone().unwrap_or_else(|| beside("admin.token")))?
            }
        };
        let log = config.audit_log.clone().unwrap_or_else(|| beside("audit.log"));
        let audit = if config.admin.is_some() { Audit::open(&log)? } else { Audit::nowhere() };
        let (token, audit) = (Arc::new(token), Arc::new(audit));
        Ok(Self { config: config.shown.clone(), scope: Arc::clone(&config.scope), token, audit })
    }
}

impl Admin {
    pub(crate) fn new(
        config: &Config,
        store: Arc<dyn Inspect>,
        once: Idempotency,
        gate: Arc<Gate>,
    ) -> Result<Arc<Self>, Failure> {
        let now = RwLock::new(Now::of(config)?);
        let (events, _) = broadcast::channel(256);
        let readiness = Readiness::of(&config.store);
        let (metrics, look) = (metrics::install()?, Look::default());
        Ok(Arc::new(Self { store, once, gate, events, metrics, readiness, look, now }))
    }

    pub(crate) fn token_file(&self) -> Option<PathBuf> {
        self.token().file().map(Into::into)
    }

    fn token(&self) -> Arc<Token> {
        Arc::clone(&self.now.read().token)
    }

    fn audit(&self) -> Arc<Audit> {
        Arc::clone(&self.now.read().audit)
    }

    /// Works with another configuration from now on: its token is the only one that counts.
    pub(crate) fn reload(&self, config: &Config) -> Result<(), Failure> {
        *self.now.write() = Now::of(config)?;
        // Nobody may be listening.
        let _ = self.events.send(Event::Reloaded);
        Ok(())
    }
}

/// Serves the admin API for ever, with limits of its own: whoever holds on to it takes nothing from callers.
pub(crate) async fn serve(listener: TcpListener, admin: Arc<Admin>) {
    let places = Places::new(CONNECTIONS);
    let app = Listener { router: app(Arc::clone(&admin)), admin };
    // It goes on until the process ends.
    let (_stay, left) = watch::channel(false);
    Server { listener, places, app }.run(left).await;
}

fn app(admin: Arc<Admin>) -> Router {
    let guarded = api::routes().layer(middleware::from_fn_with_state(Arc::clone(&admin), guard));
    Router::new()
        .route("/healthz", get(health::healthy))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(show_metrics))
        .nest("/api", guarded)
        .fallback(async || AdminProblem::not_found("nothing is served here; the API is at /api/openapi.json"))
        .with_state(admin)
}

/// Lets through who knows the token.
async fn guard(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    if given.is_some_and(|given| admin.token().is(given)) {
        return next.run(request).await;
    }
    let mut refusal = AdminProblem::new(
        StatusCode::UNAUTHORIZED,
        "send `Authorization: Bearer TOKEN`; the gateway prints at its start which file holds the token",
    )
    .into_response();
    refusal.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    refusal
}

async fn show_metrics(State(admin): State<Arc<Admin>>) -> Response {
    let text = admin.metrics.text(&admin);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
