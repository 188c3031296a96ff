//! P1: the layer on a memory store against the same axum handler without it.

use std::net::SocketAddr;

use axum::routing::post;
use axum::{Json, Router};
use onlyonce::http::{IdempotencyLayer, ScopeFrom};
use onlyonce::{Idempotency, MemoryStore};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::Effort;
use crate::load::{Keys, pace};
use onlyonce_bench_report::{Goal, Report};

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: u64,
    lines: Vec<Line>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    article: String,
    quantity: u32,
    price: f64,
}

#[derive(Debug, Serialize)]
struct Receipt {
    id: u64,
    total: f64,
}

async fn pay(Json(order): Json<Order>) -> Json<Receipt> {
    let total = order.lines.iter().map(|line| f64::from(line.quantity) * line.price).sum();
    Json(Receipt { id: order.id, total })
}

/// An order of about 1 KiB.
fn order() -> String {
    let lines =
        (0..16).map(|n| Line { article: format!("article-{n:08}"), quantity: n, price: 9.75 }).collect();
    serde_json::to_string(&Order { id: 7, lines }).expect("an order is JSON")
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let routes = || Router::new().route("/pay", post(pay));
        let once = Idempotency::new(MemoryStore::new().max_records(100_000_000));
        let bare = serve(routes()).await;
        let layered = serve(routes().layer(IdempotencyLayer::new(once, ScopeFrom::nobody()))).await;
        let body = order();
        let (mut fresh, mut replays) = (Vec::new(), Vec::new());
        for round in 0..=effort.rounds {
            let without = pace(bare, &body, Keys::Fresh, effort.round).await;
            let first = pace(layered, &body, Keys::Fresh, effort.round).await;
            let again = pace(layered, &body, Keys::Repeated, effort.round).await;
            // The first round warms up.
            if round > 0 {
                fresh.push(first.rate / without.rate);
                replays.push(again.rate / without.rate);
                eprintln!("round {round}: bare {without}, first runs {first}, replays {again}");
            }
        }
        report.add("P1", "layer on memory, first runs / bare handler", &fresh, Goal::AtLeast(0.75));
        report.add("P1", "layer on memory, replays / bare handler", &replays, Goal::AtLeast(0.85));
    });
}
