//! The service that the clients of these tests call.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::post;
use onlyonce_core::{Idempotency, MemoryStore, Store};
use onlyonce_http::{IdempotencyLayer, ScopeFrom};
use onlyonce_testkit::Ledger;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const KEY: &str = "idempotency-key";

/// A service that records every effect, and every request with its key.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) ledger: Ledger,
    pub(crate) seen: Ledger,
    pub(crate) store: Arc<dyn Store>,
    /// How long a handler takes.
    pub(crate) takes: Duration,
}

impl Service {
    pub(crate) fn new() -> Self {
        let (ledger, seen) = (Ledger::in_memory(), Ledger::in_memory());
        Self { ledger, seen, store: Arc::new(MemoryStore::new()), takes: Duration::ZERO }
    }

    /// `answers` may answer instead of the service, before the layer sees the request: it is told how many came before.
    pub(crate) async fn serve(
        &self,
        at: &str,
        answers: impl Fn(u32) -> Option<Response> + Clone + Send + Sync + 'static,
    ) -> (SocketAddr, JoinHandle<()>) {
        let once = Idempotency::builder_shared(Arc::clone(&self.store)).build().unwrap();
        let (ledger, seen, takes) = (self.ledger.clone(), self.seen.clone(), self.takes);
        let count = Arc::new(AtomicU32::new(0));
        let pay = async move |headers: HeaderMap, body: String| {
            tokio::time::sleep(takes).await;
            let key = headers[KEY].to_str().unwrap();
            ledger.record(key, &body).unwrap();
            (StatusCode::CREATED, format!("paid {body}, effect of {key}"))
        };
        let app = Router::new()
            .route("/pay", post(pay).get(async |headers: HeaderMap| headers.contains_key(KEY).to_string()))
            .layer(IdempotencyLayer::new(once, ScopeFrom::nobody()))
            .layer(middleware::from_fn(move |request: Request, next: Next| {
                let (seen, count, answers) = (seen.clone(), Arc::clone(&count), answers.clone());
                async move {
                    if request.method() == "POST" {
                        seen.record(request.headers()[KEY].to_str().unwrap(), "seen").unwrap();
                        if let Some(answer) = answers(count.fetch_add(1, Ordering::SeqCst)) {
                            return answer;
                        }
                    }
                    next.run(request).await
                }
            }));
        let listener = TcpListener::bind(at).await.unwrap();
        let address = listener.local_addr().unwrap();
        (address, tokio::spawn(async move { axum::serve(listener, app).await.unwrap() }))
    }

    pub(crate) fn effects(&self) -> usize {
        self.ledger.effects().unwrap().len()
    }

    /// How many posts the server ever saw.
    pub(crate) fn posts(&self) -> usize {
        self.seen.effects().unwrap().len()
    }

    /// How many keys the server ever saw.
    pub(crate) fn keys(&self) -> usize {
        let seen = self.seen.effects().unwrap();
        seen.iter().map(|effect| effect.key.as_str()).collect::<BTreeSet<_>>().len()
    }
}
