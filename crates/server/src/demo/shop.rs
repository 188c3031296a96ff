//! The shop: the same payment behind the layer, and the way it is often written by hand.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use onlyonce::Idempotency;
use onlyonce::http::{IdempotencyLayer, MissingKey, On500, Options, ScopeFrom};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::bank::Bank;
use super::page;
use crate::failure::Failure;

/// The largest amount that the card is good for, in cents.
const LIMIT: u64 = 100_000;
/// How many answers the naive side keeps; it forgets them all when there are more.
const NAIVE_MEMORY: usize = 10_000;

#[derive(Debug, Clone)]
struct Shop {
    bank: Arc<Bank>,
    /// Where the naive side looks first and writes afterwards.
    seen: Arc<Mutex<HashMap<String, (StatusCode, Value)>>>,
}

#[derive(Debug, Deserialize)]
struct Payment {
    order: String,
    amount: u64,
}

pub(super) fn app(once: Idempotency, bank: Arc<Bank>) -> Result<Router, Failure> {
    let strict = Options { missing_key: MissingKey::Reject, on_500: On500::Unknown, ..Options::default() };
    // Everybody at this page is the same caller; a real shop scopes by the user that its login has verified.
    // Only the one route is protected: the naive side must show what happens without.
    let layer = IdempotencyLayer::builder(once, ScopeFrom::nobody())
        .methods([])
        .route("POST /payments", strict)
        .build()
        .map_err(|error| Failure::because("the layer can't be built", &error))?;
    let shop = Shop { bank, seen: Arc::default() };
    Ok(Router::new()
        .route("/payments", post(pay))
        .route("/naive/payments", post(pay_naively))
        .route("/demo/charges", get(charges))
        .merge(page::routes())
        .layer(layer)
        .with_state(shop))
}

/// Charges whenever it is called. The layer sees to it that this is once for each key.
async fn pay(State(shop): State<Shop>, Json(payment): Json<Payment>) -> Response {
    charge(&shop, &payment, true).await.into_response()
}

/// Looks whether the key was seen, charges, writes it down: right until two come at once, or the process restarts.
async fn pay_naively(State(shop): State<Shop>, headers: HeaderMap, Json(payment): Json<Payment>) -> Response {
    let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned)
    else {
        return charge(&shop, &payment, false).await.into_response();
    };
    if let Some((status, answer)) = shop.seen.lock().get(&key) {
        return (*status, [("idempotent-replayed", "true")], Json(answer.clone())).into_response();
    }
    let (status, Json(answer)) = charge(&shop, &payment, false).await;
    let mut seen = shop.seen.lock();
    if seen.len() >= NAIVE_MEMORY {
        seen.clear();
    }
    seen.insert(key, (status, answer.clone()));
    (status, Json(answer)).into_response()
}

async fn charge(shop: &Shop, payment: &Payment, protected: bool) -> (StatusCode, Json<Value>) {
    if payment.amount == 0 || payment.order.is_empty() || payment.order.len() > 100 {
        let why = "an order has a name of 1 to 100 bytes, and costs something";
        return (StatusCode::BAD_REQUEST, Json(json!({ "error": why })));
    }
    if payment.amount > LIMIT {
        // A business refusal: an answer like any other, and the same for every retry.
        tokio::time::sleep(Duration::from_millis(100)).await;
        return (StatusCode::PAYMENT_REQUIRED, Json(json!({ "error": "the card was declined" })));
    }
    match shop.bank.charge(&payment.order, payment.amount, protected).await {
        Ok(receipt) => {
            let answer = json!({ "receipt": receipt, "order": payment.order, "amount": payment.amount });
            (StatusCode::CREATED, Json(answer))
        }
        Err(error) => {
            tracing::error!(%error, "the bank's book can't be written");
            (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({ "error": "the bank did not answer" })))
        }
    }
}

async fn charges(State(shop): State<Shop>) -> Json<Value> {
    let (latest, count) = shop.bank.statement();
    Json(json!({ "count": count, "latest": latest }))
}
