//! The classic test of one-time tokens on every store, and a thousand who race for one.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test that includes a program")]

#[path = "../src/bin/token.rs"]
#[allow(dead_code, reason = "the test drives the app without its main")]
mod token;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use onlyonce::embedded::EmbeddedStore;
use onlyonce::redis::RedisStore;
use onlyonce::token::{TokenKeys, Tokens};
use onlyonce::{Classify, Idempotency, MemoryStore, Mode, Refusal, Store};
use tower::ServiceExt;

const RACERS: usize = 1000;

type Make = fn(Idempotency) -> Tokens;

/// All three kinds, in the mode that refuses duplicates.
fn kinds() -> [(&'static str, Make); 3] {
    let signed: Make = |once| Tokens::signed(once, TokenKeys::new(1, [5; 32]).unwrap()).mode(Mode::Reject);
    let stored: Make = |once| Tokens::stored(once).mode(Mode::Reject);
    [("signed", signed), ("stored", stored), ("delete first", Tokens::delete_first)]
}

async fn redis() -> Arc<dyn Store> {
    let url = std::env::var("ONLYONCE_TEST_REDIS_URL").expect(
        "ONLYONCE_TEST_REDIS_URL is not set: run `cargo xtask test`, or `cargo xtask services` and set what it prints",
    );
    let nanos = Tokens::stored(Idempotency::new(MemoryStore::new())).issue_for("a", "b").await.unwrap();
    Arc::new(
        RedisStore::builder(url).prefix(format!("tokens:{}:", &nanos.as_str()[..16])).open().await.unwrap(),
    )
}

/// The classic test: five posts with one token.
async fn five_posts(store: Arc<dyn Store>) {
    for (kind, make) in kinds() {
        let app = token::app(make(Idempotency::builder_shared(Arc::clone(&store)).build().unwrap()));
        let send = async |request: Request<Body>| {
            let response = app.clone().oneshot(request).await.unwrap();
            let status = response.status();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8(body.to_vec()).unwrap())
        };
        let (_, token) = send(Request::get("/token").body(Body::empty()).unwrap()).await;
        let mut heard = Vec::new();
        for _ in 0..5 {
            let post = Request::post("/test").header("token", &token).body(Body::empty()).unwrap();
            heard.push(send(post).await.1);
        }
        assert_eq!(heard, ["正常调用", "重复调用", "重复调用", "重复调用", "重复调用"], "{kind}");
        let nothing = send(Request::post("/test").body(Body::empty()).unwrap()).await;
        assert_eq!(nothing.0, StatusCode::BAD_REQUEST);
    }
}

#[derive(Debug, Classify)]
enum Lost {
    #[unknown]
    Race(Refusal),
}

impl From<Refusal> for Lost {
    fn from(refusal: Refusal) -> Self {
        Self::Race(refusal)
    }
}

/// A thousand callers with one token.
async fn race(store: Arc<dyn Store>) {
    for (kind, make) in kinds() {
        let tokens = make(Idempotency::builder_shared(Arc::clone(&store)).build().unwrap());
        let token = tokens.issue_for("ann", "order").await.unwrap();
        let effects = Arc::new(AtomicUsize::new(0));
        let racers: Vec<_> = (0..RACERS)
            .map(|_| {
                let (tokens, token, effects) = (tokens.clone(), token.clone(), Arc::clone(&effects));
                tokio::spawn(async move {
                    let Ok(call) = tokens.redeem(&token, "ann", "order").await else { return false };
                    let body = async move { Ok::<_, Lost>(effects.fetch_add(1, Ordering::SeqCst)) };
                    match call.run(body).await {
                        Ok(_) => true,
                        Err(Lost::Race(Refusal::Duplicate)) => false,
                        Err(Lost::Race(other)) => panic!("{other}"),
                    }
                })
            })
            .collect();
        let mut winners = 0;
        for racer in racers {
            winners += usize::from(racer.await.unwrap());
        }
        assert_eq!((winners, effects.load(Ordering::SeqCst)), (1, 1), "{kind}");
    }
}

#[tokio::test]
async fn of_five_posts_the_first_runs_on_memory() {
    five_posts(Arc::new(MemoryStore::new())).await;
}

#[tokio::test]
async fn of_five_posts_the_first_runs_on_the_embedded_store() {
    let directory = tempfile::tempdir().unwrap();
    five_posts(Arc::new(EmbeddedStore::open(directory.path()).unwrap())).await;
}

#[tokio::test]
async fn of_five_posts_the_first_runs_on_redis() {
    five_posts(redis().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_thousand_racers_one_wins_on_memory() {
    race(Arc::new(MemoryStore::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_thousand_racers_one_wins_on_the_embedded_store() {
    let directory = tempfile::tempdir().unwrap();
    race(Arc::new(EmbeddedStore::open(directory.path()).unwrap())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_thousand_racers_one_wins_on_redis() {
    race(redis().await).await;
}
