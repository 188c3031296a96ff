//! The same layer, and `Tx` as an argument of a handler: the answer goes out after the commit, or not at all.
#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "axum"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use common::*;
use onlyonce_core::{Order, Refusal, SequenceKey, Settings};
use onlyonce_http::{IdempotencyLayer, KeyFrom, Options, ScopeFrom};
use onlyonce_sql::{SqlStore, Tx};
use tower::ServiceExt as _;

on_each! {
    an_answer_goes_out_after_the_commit_and_is_replayed,
    a_refusal_is_kept_and_what_it_did_is_undone,
    a_failure_is_undone_and_the_retry_runs,
    a_panic_is_undone_and_said_to_be,
    a_tx_inside_the_body_commits_nothing,
    a_client_who_disconnects_stops_nothing,
    a_request_without_a_key_has_no_transaction,
}

struct World<DB: Effects> {
    table: Arc<str>,
    store: SqlStore<DB>,
    app: Router,
}

type Table = Extension<Arc<str>>;

async fn pay<DB: Effects>(Extension(table): Table, mut tx: Tx<DB>) -> Response {
    DB::effect(&mut tx, &table, "k").await;
    (StatusCode::CREATED, format!("paid {}", rand::random::<u64>())).into_response()
}

async fn refuse<DB: Effects>(Extension(table): Table, mut tx: Tx<DB>) -> Response {
    DB::effect(&mut tx, &table, "k").await;
    (StatusCode::UNPROCESSABLE_ENTITY, format!("sold out {}", rand::random::<u64>())).into_response()
}

/// Fails the first time, then answers.
async fn flaky<DB: Effects>(Extension(table): Table, mut tx: Tx<DB>) -> Response {
    static FIRST: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(true);
    DB::effect(&mut tx, &table, "k").await;
    if FIRST.swap(false, std::sync::atomic::Ordering::Relaxed) {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    "paid".into_response()
}

async fn panics<DB: Effects>(Extension(table): Table, mut tx: Tx<DB>) -> Response {
    DB::effect(&mut tx, &table, "k").await;
    panic!("the handler's own")
}

async fn in_body<DB: Effects>(Extension(table): Table, mut tx: Tx<DB>) -> Response {
    DB::effect(&mut tx, &table, "k").await;
    // The body, which is too large to be kept, would still hold the transaction when the answer goes out.
    let chunks = futures_util::stream::unfold((tx, 0), |(tx, n)| async move {
        let chunk = Ok::<_, std::convert::Infallible>("x".repeat(100_000));
        (n < 20).then_some((chunk, (tx, n + 1)))
    });
    Body::from_stream(chunks).into_response()
}

impl<DB: Effects> World<DB> {
    async fn new() -> Self {
        let table: Arc<str> = table().into();
        let store = open_table::<DB>(&table).await;
        DB::make(store.pool(), &table).await;
        let settings = Settings { wait: Duration::from_secs(60), ..Settings::default() };
        let once = store.same_transaction().settings(settings).build().unwrap();
        let app = Router::new()
            .route("/pay", post(pay::<DB>))
            .route("/refuse", post(refuse::<DB>))
            .route("/flaky", post(flaky::<DB>))
            .route("/panics", post(panics::<DB>))
            .route("/in-body", post(in_body::<DB>))
            .layer(IdempotencyLayer::new(once, ScopeFrom::header("x-tenant")))
            .layer(Extension(Arc::clone(&table)));
        Self { table, store, app }
    }

    fn request(path: &str, key: Option<&str>) -> Request<Body> {
        let mut request = Request::post(path).header("x-tenant", "t").body(Body::from("{}")).unwrap();
        if let Some(key) = key {
            request.headers_mut().insert("idempotency-key", key.parse().unwrap());
        }
        request
    }

    async fn post(&self, path: &str) -> (StatusCode, String, bool) {
        let response = self.app.clone().oneshot(Self::request(path, Some("k"))).await.unwrap();
        let replayed = response.headers().contains_key("idempotent-replayed");
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap(), replayed)
    }

    async fn effects(&self) -> i64 {
        DB::count(self.store.pool(), &self.table, "k").await
    }
}

async fn an_answer_goes_out_after_the_commit_and_is_replayed<DB: Effects>() {
    let world = World::<DB>::new().await;
    let (status, body, replayed) = world.post("/pay").await;
    assert_eq!((status, replayed), (StatusCode::CREATED, false), "{body}");
    assert_eq!(world.effects().await, 1, "committed before the answer was here");
    assert_eq!(world.post("/pay").await, (StatusCode::CREATED, body, true));
    assert_eq!(world.effects().await, 1);
}

async fn a_refusal_is_kept_and_what_it_did_is_undone<DB: Effects>() {
    let world = World::<DB>::new().await;
    let (status, body, _) = world.post("/refuse").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
    assert_eq!(world.post("/refuse").await, (status, body, true));
    assert_eq!(world.effects().await, 0);
}

async fn a_failure_is_undone_and_the_retry_runs<DB: Effects>() {
    let world = World::<DB>::new().await;
    assert_eq!(world.post("/flaky").await.0, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(world.effects().await, 0);
    assert_eq!(world.post("/flaky").await, (StatusCode::OK, "paid".into(), false));
    assert_eq!(world.effects().await, 1);
}

async fn a_panic_is_undone_and_said_to_be<DB: Effects>() {
    let world = World::<DB>::new().await;
    let (status, body, _) = world.post("/panics").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(body.contains("urn:onlyonce:problem:rolled-back"), "{body}");
    assert_eq!(world.effects().await, 0);
    assert!(world.post("/panics").await.1.contains("rolled-back"), "it ran again, for nothing was left");
}

async fn a_tx_inside_the_body_commits_nothing<DB: Effects>() {
    let world = World::<DB>::new().await;
    let (status, body, _) = world.post("/in-body").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    // It is the handler that has to be put right, and that is said.
    assert!(body.contains(r#""retryable":false"#) && body.contains("a retry will not help"), "{body}");
    assert_eq!(world.effects().await, 0);
}

async fn a_client_who_disconnects_stops_nothing<DB: Effects>() {
    let world = World::<DB>::new().await;
    for n in 0..10_u64 {
        let app = world.app.clone();
        let request = World::<DB>::request("/pay", Some(&format!("gone-{n}")));
        let call = tokio::spawn(app.oneshot(request));
        tokio::time::sleep(Duration::from_micros(n * 500)).await;
        call.abort();
        let again = World::<DB>::request("/pay", Some(&format!("gone-{n}")));
        assert_eq!(world.app.clone().oneshot(again).await.unwrap().status(), StatusCode::CREATED);
    }
    assert_eq!(world.effects().await, 10, "each key has its one effect");
    for _ in 0..world.store.pool().options().get_max_connections() {
        let connection = world.store.pool().acquire().await.unwrap();
        assert!(!sqlx::Connection::is_in_transaction(&*connection));
    }
}

async fn a_request_without_a_key_has_no_transaction<DB: Effects>() {
    let world = World::<DB>::new().await;
    let response = world.app.clone().oneshot(World::<DB>::request("/pay", None)).await.unwrap();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let body = to_bytes(response.into_body(), 10_000).await.unwrap();
    assert!(String::from_utf8_lossy(&body).contains("MissingKey::Reject"));
}

#[tokio::test]
async fn rising_numbers_are_refused_in_a_transaction_and_say_what_to_use_instead() {
    let once = open_table::<sqlx::Sqlite>(&table()).await.same_transaction().build().unwrap();
    let rising = Options {
        key: KeyFrom::Sequence("x-number".parse().unwrap()),
        order: Order::Increasing,
        ..Options::default()
    };
    let built =
        IdempotencyLayer::builder(once.clone(), ScopeFrom::nobody()).route("POST /pay", rising).build();
    let why = built.unwrap_err().to_string();
    assert!(why.contains("guard::sequence"), "{why}");
    let number = SequenceKey::new("partner-7", 42).unwrap();
    let call = once.sequence("pay", &number, Order::Increasing);
    let refused = call.run(async { Ok::<_, No>("paid".to_owned()) }).await;
    assert!(matches!(refused, Err(No::Refused(Refusal::Input(_)))), "{refused:?}");
    let any =
        once.sequence("pay", &number, Order::Unique).run(async { Ok::<_, No>("paid".to_owned()) }).await;
    assert_eq!(any.unwrap(), "paid");
}
