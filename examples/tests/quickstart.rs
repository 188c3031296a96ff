//! The example of the README is the file that is compiled here, and it does what the README says.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test that includes a program")]

#[path = "../src/bin/quickstart.rs"]
#[allow(dead_code, reason = "the test drives the app without its main")]
mod quickstart;

use axum::body::{Body, Bytes};
use axum::http::{Request, Response};
use http_body_util::BodyExt;
use tower::ServiceExt;

async fn pay(app: &axum::Router, user: &str, key: &str, amount: u32) -> (Response<()>, Bytes) {
    let request = Request::post("/payments")
        .header("content-type", "application/json")
        .header("x-user", user)
        .header("idempotency-key", key)
        .body(Body::from(format!("{{\"amount\":{amount}}}")))
        .unwrap();
    let (parts, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    (Response::from_parts(parts, ()), body.collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn the_quickstart_charges_once_and_replays_the_answer() {
    let app = quickstart::app();
    let (first, paid) = pay(&app, "ann", "k", 100).await;
    assert_eq!(first.status(), 200);
    let (again, same) = pay(&app, "ann", "k", 100).await;
    assert_eq!(again.headers()["idempotent-replayed"], "true");
    assert_eq!(same, paid);
    assert_eq!(pay(&app, "ann", "k", 999).await.0.status(), 422);
    assert!(!pay(&app, "bob", "k", 100).await.0.headers().contains_key("idempotent-replayed"));
}

#[test]
fn the_readme_shows_the_example_as_it_is() {
    let source = include_str!("../src/bin/quickstart.rs");
    let code = source.split_once("\n\n").expect("a doc comment, then the code").1;
    assert!(include_str!("../../README.md").contains(code), "README.md and quickstart.rs differ");
}
