//! The classic test of one-time tokens on every store, and a thousand who race for one.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test that includes a program")]

mod stores;
#[path = "../src/bin/token.rs"]
#[allow(dead_code, reason = "the test drives the app without its main")]
mod token;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use onlyonce::token::{TokenKeys, Tokens};
use onlyonce::{Classify, Idempotency, Mode, Refusal, Store};
use tower::ServiceExt;

const RACERS: usize = 1000;
/// As many engines share a store, as in as many processes: none knows of a race but by the store.
const ENGINES: usize = 4;

stores::on_each_store!(of_five_posts_the_first_runs, of_a_thousand_racers_one_wins,);

type Make = fn(Idempotency) -> Tokens;

/// All three kinds, in the mode that refuses duplicates.
fn kinds() -> [(&'static str, Make); 3] {
    let signed: Make = |once| Tokens::signed(once, TokenKeys::new(1, [5; 32]).unwrap()).mode(Mode::Reject);
    let stored: Make = |once| Tokens::stored(once).mode(Mode::Reject);
    [("signed", signed), ("stored", stored), ("delete first", Tokens::delete_first)]
}

fn engine(store: &Arc<dyn Store>) -> Idempotency {
    Idempotency::builder_shared(Arc::clone(store)).build().unwrap()
}

/// The classic test: five posts with one token.
async fn of_five_posts_the_first_runs(store: Arc<dyn Store>) {
    for (kind, make) in kinds() {
        let app = token::app(make(engine(&store)));
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

/// A thousand callers with one token, at once.
async fn of_a_thousand_racers_one_wins(store: Arc<dyn Store>) {
    for (kind, make) in kinds() {
        let engines: Vec<Tokens> = (0..ENGINES).map(|_| make(engine(&store))).collect();
        let token = engines[0].issue_for("ann", "order").await.unwrap();
        let effects = Arc::new(AtomicUsize::new(0));
        let start = Arc::new(tokio::sync::Barrier::new(RACERS));
        let racers: Vec<_> = (0..RACERS)
            .map(|n| {
                let (tokens, token, effects) =
                    (engines[n % ENGINES].clone(), token.clone(), Arc::clone(&effects));
                let start = Arc::clone(&start);
                tokio::spawn(async move {
                    start.wait().await;
                    let call = match tokens.redeem(&token, "ann", "order").await {
                        Ok(call) => call,
                        Err(onlyonce::token::TokenError::Gone) => return false,
                        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
                    };
                    let body = async move { Ok::<_, Lost>(effects.fetch_add(1, Ordering::SeqCst)) };
                    match call.run(body).await {
                        Ok(_) => true,
                        Err(Lost::Race(Refusal::Duplicate)) => false,
                        Err(Lost::Race(other)) => panic!("{other:?}"),
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
