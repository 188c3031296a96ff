//! A payments service behind the layer, on a real socket, and a client for it.

mod client;
mod gate;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use onlyonce_core::{Idempotency, ManualClock, MemoryStore, Settings, Store};
use onlyonce_http::{IdempotencyLayer, LayerBuilder, Options, ScopeFrom};
use onlyonce_testkit::Ledger;
use tokio::net::TcpListener;

pub(crate) use client::{Answer, Client, post};
pub(crate) use gate::Gate;

/// A running service. Its handlers record every effect in the ledger.
pub(crate) struct Service {
    pub(crate) client: Client,
    ledger: Ledger,
    pub(crate) once: Idempotency,
    pub(crate) clock: ManualClock,
}

impl Service {
    /// How many effects there were.
    pub(crate) fn effects(&self) -> usize {
        self.ledger.effects().unwrap().len()
    }
}

/// What a test wants of its service.
pub(crate) struct Setup {
    store: Option<Arc<dyn Store>>,
    clock: ManualClock,
    settings: Settings,
    layer: Box<dyn FnOnce(LayerBuilder) -> LayerBuilder>,
    scope: ScopeFrom,
}

impl Setup {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        let (settings, scope) = (Settings::default(), ScopeFrom::nobody());
        Self { store: None, clock, settings, layer: Box::new(|layer| layer), scope }
    }

    pub(crate) fn clock(&self) -> ManualClock {
        self.clock.clone()
    }

    pub(crate) fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    pub(crate) fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    pub(crate) fn scope(mut self, scope: ScopeFrom) -> Self {
        self.scope = scope;
        self
    }

    pub(crate) fn layer(mut self, layer: impl FnOnce(LayerBuilder) -> LayerBuilder + 'static) -> Self {
        self.layer = Box::new(layer);
        self
    }

    pub(crate) fn options(self, options: Options) -> Self {
        self.layer(move |layer| layer.options(options))
    }

    /// Serves the router that `routes` makes, behind the layer.
    pub(crate) async fn serve(self, routes: impl FnOnce(Ledger) -> Router) -> Service {
        let clock = self.clock;
        let store = self.store.unwrap_or_else(|| Arc::new(MemoryStore::new().with_clock(clock.clone())));
        let once =
            Idempotency::builder_shared(store).clock(clock.clone()).settings(self.settings).build().unwrap();
        let layer = (self.layer)(IdempotencyLayer::builder(once.clone(), self.scope)).build().unwrap();
        let ledger = Ledger::in_memory();
        let app = routes(ledger.clone()).layer(layer);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Service { client, ledger, once, clock }
    }

    /// Serves a handler that has one effect per call and answers with its number.
    pub(crate) async fn counting(self) -> Service {
        self.serve(counting).await
    }
}

/// One effect per call; the answer tells them apart.
pub(crate) fn counting(ledger: Ledger) -> Router {
    Router::new().fallback(move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
        let ledger = ledger.clone();
        async move {
            let effect = effect(&ledger, &headers, &uri);
            let body = format!("{method} {} effect {effect} of {} bytes", uri.path(), body.len());
            (StatusCode::CREATED, [("x-effect", effect.to_string())], body)
        }
    })
}

/// Records an effect under the key of the request, and says which one it is.
pub(crate) fn effect(ledger: &Ledger, headers: &HeaderMap, uri: &Uri) -> usize {
    let key = headers.get("idempotency-key").map_or("none", |key| key.to_str().unwrap());
    ledger.record(key, uri.path()).unwrap();
    ledger.effects().unwrap().len()
}

/// A router whose handlers have one effect and then answer with `answer`.
pub(crate) fn answering<R: IntoResponse>(
    answer: impl Fn() -> R + Clone + Send + Sync + 'static,
) -> impl FnOnce(Ledger) -> Router {
    move |ledger| {
        Router::new().fallback(move |uri: Uri, headers: HeaderMap| {
            let (ledger, answer) = (ledger.clone(), answer.clone());
            async move {
                effect(&ledger, &headers, &uri);
                let response: Response = answer().into_response();
                response
            }
        })
    }
}

/// A router whose handlers wait at the gate and have no effect.
pub(crate) fn waiting_at(gate: &Gate) -> impl FnOnce(Ledger) -> Router + use<> {
    let gate = gate.clone();
    |_| {
        Router::new().fallback(move || {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                "done"
            }
        })
    }
}

/// Waits until something holds; fails after a generous while.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..2_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never came true: {what}");
}
