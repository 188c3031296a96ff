//! The admin listener: health, metrics, and a JSON API to inspect and repair records.

mod api;
mod audit;
mod events;
mod metrics;
mod problem;
mod store;
mod token;
mod view;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use onlyonce::{Idempotency, Inspect, RecordId};
use parking_lot::RwLock;
use tokio::net::TcpListener;
use tokio::sync::broadcast;

pub(crate) use self::audit::{Audit, Change};
use self::events::Event;
pub(crate) use self::metrics::keep_up;
use self::problem::AdminProblem;
pub(crate) use self::store::Timed;
use self::token::Token;
use crate::config::Config;
use crate::failure::Failure;
use crate::gateway::Gate;
use crate::gateway::scope::ScopeRule;
use crate::stores;

pub(crate) use view::{Detail, Listing, Outcome, RecordView, Resolve, StateName};

/// How long the store may take to show that it is there.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// What the admin API works on.
#[derive(Debug)]
pub(crate) struct Admin {
    store: Arc<dyn Inspect>,
    once: Idempotency,
    gate: Arc<Gate>,
    events: broadcast::Sender<Event>,
    metrics: metrics::Handle,
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
        Ok(Arc::new(Self { store, once, gate, events, metrics: metrics::install()?, now }))
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

/// Serves the admin API for ever.
pub(crate) async fn serve(listener: TcpListener, admin: Arc<Admin>) {
    if let Err(error) = axum::serve(listener, app(admin)).await {
        tracing::error!(%error, "the admin API stopped");
    }
}

fn app(admin: Arc<Admin>) -> Router {
    let guarded = api::routes().layer(middleware::from_fn_with_state(Arc::clone(&admin), guard));
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
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

async fn ready(State(admin): State<Arc<Admin>>) -> Response {
    if admin.gate.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    let nothing = RecordId::from_bytes([0; 32]);
    match tokio::time::timeout(READY_WITHIN, admin.store.get(&nothing)).await {
        Ok(Ok(_)) => "ready\n".into_response(),
        Ok(Err(error)) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "the store is not ready");
            (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n").into_response()
        }
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer in time\n").into_response(),
    }
}

async fn show_metrics(State(admin): State<Arc<Admin>>) -> Response {
    let text = admin.metrics.text(&admin);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
