//! Calls in a process of their own: by the layer, and by the engine on each store.

use axum::body::Body;
use axum::http::Request;
use axum::routing::post;
use axum::{Router, body::Bytes};
use http_body_util::BodyExt as _;
use onlyonce::embedded::EmbeddedStore;
use onlyonce::http::{IdempotencyLayer, ScopeFrom};
use onlyonce::redis::RedisStore;
use onlyonce::sql::{Database, InTransaction as _, MySqlStore, PostgresStore, SqlStore, SqliteStore, Tx};
use onlyonce::{Idempotency, MemoryStore};
use tower::ServiceExt as _;

use crate::calls::{Kind, Never};
use crate::case::Counts;
use crate::valgrind::{Callgrind, What};

/// What is counted; see [`run`] for what each word means.
pub(crate) const CASES: &[&str] = &[
    "handler alone",
    "layer, first run",
    "layer, replay",
    "engine, first run",
    "engine, replay",
    "embedded, first run",
    "embedded, replay",
    "redis, first run",
    "redis, replay",
    "postgres, first run",
    "postgres, in transaction",
    "postgres, replay",
    "mysql, first run",
    "mysql, in transaction",
    "mysql, replay",
    "sqlite, first run",
    "sqlite, in transaction",
    "sqlite, replay",
];

/// In a process of its own.
pub(crate) fn count(case: &'static str, calls: u64) -> Counts {
    let callgrind = Callgrind::new();
    let program = std::env::current_exe().expect("this program");
    let done = callgrind.command(&program).args(["run", case, &calls.to_string()]).output();
    let done = done.expect("valgrind is installed");
    assert!(done.status.success(), "{case}: {}", String::from_utf8_lossy(&done.stderr));
    // Files are written by those without a server, and by first runs.
    let has_file = ["embedded", "sqlite"].contains(&place(case)) && !case.ends_with("replay");
    let files: &[What] = if has_file { &[What::Writes, What::Syncs] } else { &[] };
    callgrind.counts(&[&[What::Instructions, What::Allocations], files].concat())
}

/// Where a case keeps its records: its first word.
pub(crate) fn place(case: &str) -> &str {
    case.split_once(", ").map_or(case, |(place, _)| place)
}

/// Makes so many calls of a case on the server that the environment names.
pub(crate) async fn run(case: &str, calls: u64) {
    run_at(case, &url(place(case)), calls).await;
}

/// Where the server of a store is; nothing for stores without one.
pub(crate) fn url(place: &str) -> String {
    let variable = format!("ONLYONCE_TEST_{}_URL", place.to_uppercase());
    std::env::var(variable).unwrap_or_default()
}

/// Makes so many calls of a case on this server.
///
/// # Panics
/// If there is no such case, or a call goes wrong.
pub(crate) async fn run_at(case: &str, url: &str, calls: u64) {
    let (place, way) = case.split_once(", ").unwrap_or((case, "first run"));
    let kind = if way == "replay" { Kind::Replay } else { Kind::First };
    match place {
        "handler alone" => served(handler(), kind, calls).await,
        "layer" => {
            let once = Idempotency::new(MemoryStore::new());
            served(handler().layer(IdempotencyLayer::new(once, ScopeFrom::nobody())), kind, calls).await;
        }
        "engine" => leased(Idempotency::new(MemoryStore::new()), kind, calls).await,
        "embedded" => {
            let folder = tempfile::tempdir().expect("a folder");
            let store = EmbeddedStore::open(folder.path()).expect("an embedded store");
            leased(Idempotency::new(store), kind, calls).await;
        }
        "redis" => {
            leased(
                Idempotency::new(
                    RedisStore::open(url).await.expect("a Redis: run `cargo xtask bench --counts`"),
                ),
                kind,
                calls,
            )
            .await;
        }
        "postgres" => {
            let store = PostgresStore::builder(url).table(table()).migrate().open().await;
            in_database(store.expect("a PostgreSQL"), way, kind, calls).await;
        }
        "mysql" => {
            let store = MySqlStore::builder(url).table(table()).migrate().open().await;
            in_database(store.expect("a MySQL"), way, kind, calls).await;
        }
        "sqlite" => {
            let folder = tempfile::tempdir().expect("a folder");
            let file = format!("sqlite://{}", folder.path().join("once.db").display());
            let store = SqliteStore::builder(file).migrate().open().await.expect("a SQLite");
            in_database(store, way, kind, calls).await;
        }
        _ => panic!("there is no case `{case}`"),
    }
}

fn handler() -> Router {
    Router::new().route("/pay", post(async |_: Bytes| "{\"receipt\":7}"))
}

async fn served(app: Router, kind: Kind, calls: u64) {
    let body = Bytes::from(format!("{{\"order\":\"{}\"}}", "x".repeat(1000)));
    kind.repeat(calls, async |key| {
        let request =
            Request::post("/pay").header("idempotency-key", key).header("content-type", "application/json");
        let request = request.body(Body::from(body.clone())).expect("a request");
        let answer = app.clone().oneshot(request).await.expect("no failure");
        assert_eq!(answer.status(), 200);
        answer.into_body().collect().await.expect("a whole answer");
    })
    .await;
}

async fn leased(once: Idempotency, kind: Kind, calls: u64) {
    kind.repeat(calls, async |key| {
        let Ok(7) = once.call("pay", key).input(&42).run(async { Ok::<u64, Never>(7) }).await else {
            panic!("another answer");
        };
    })
    .await;
}

/// A table of its own: what earlier runs left would make this one's larger.
fn table() -> String {
    format!("counts_{:016x}", rand::random::<u64>())
}

async fn in_database<DB: Database>(store: SqlStore<DB>, way: &str, kind: Kind, calls: u64) {
    if way != "in transaction" {
        return leased(Idempotency::new(store), kind, calls).await;
    }
    let once = store.same_transaction().build().expect("an engine");
    kind.repeat(calls, async |key| {
        let call = once.call("pay", key).input(&42);
        let Ok(7) = call.in_transaction(|_: Tx<DB>| async { Ok::<u64, Never>(7) }).await else {
            panic!("another answer");
        };
    })
    .await;
}
