//! The example of the README: an axum service whose POSTs are idempotent.

use axum::{Json, Router, routing::post};
use onlyonce::http::{IdempotencyLayer, ScopeFrom};
use onlyonce::{Idempotency, MemoryStore};
use serde_json::{Value, json};

async fn pay(Json(order): Json<Value>) -> Json<Value> {
    println!("charging {order}");
    Json(json!({ "paid": order }))
}

/// Charges at most once for every key of a user.
pub fn app() -> Router {
    let once = Idempotency::new(MemoryStore::new());
    let layer = IdempotencyLayer::new(once, ScopeFrom::header("x-user"));
    Router::new().route("/payments", post(pay)).layer(layer)
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    axum::serve(tokio::net::TcpListener::bind("127.0.0.1:3000").await?, app()).await
}
