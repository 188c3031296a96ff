//! After a time-out: what became of my call?

use axum::Router;
use http::StatusCode;
use onlyonce_http::{KeyFrom, Options, ScopeFrom};

use crate::support::{Gate, Setup, answering, post, waiting_at};

const QUERY: &str = "/_onlyonce/outcome?method=POST&path=/pay";

#[tokio::test]
async fn a_caller_learns_what_became_of_its_call() {
    for (status, state, shown) in
        [(201, "completed", Some(201)), (429, "failed", None), (500, "unknown", Some(500))]
    {
        let status = StatusCode::from_u16(status).unwrap();
        let service = Setup::new().serve(answering(move || status)).await;
        service.client.send(post("/pay").key("k")).await;
        let outcome = service.client.get(QUERY, &[("idempotency-key", "\"k\"")]).await;
        assert_eq!(outcome.status, 200);
        let document = outcome.json();
        assert_eq!(document["state"], state);
        assert_eq!(document["status"].as_u64(), shown);
        assert_eq!(document["attempt"], 1);
        assert_eq!(document["age"], 0);
        assert_eq!(outcome.header("cache-control"), Some("no-store"));
    }
}

#[tokio::test]
async fn a_call_under_way_is_in_progress() {
    let gate = Gate::new();
    let service = Setup::new().serve(waiting_at(&gate)).await;
    let client = service.client.clone();
    let first = tokio::spawn(async move { client.send(post("/pay").key("k")).await });
    gate.arrival().await;
    let outcome = service.client.get(QUERY, &[("idempotency-key", "k")]).await;
    assert_eq!(outcome.json()["state"], "in_progress");
    gate.open(1);
    first.await.unwrap();
}

#[tokio::test]
async fn another_callers_key_looks_unknown() {
    let service = Setup::new().scope(ScopeFrom::header("x-tenant")).counting().await;
    service.client.send(post("/pay").key("k").header("x-tenant", "a")).await;
    let mine = service.client.get(QUERY, &[("idempotency-key", "k"), ("x-tenant", "a")]).await;
    assert_eq!(mine.json()["state"], "completed");
    let theirs = service.client.get(QUERY, &[("idempotency-key", "k"), ("x-tenant", "b")]).await;
    theirs.assert_problem(404, "outcome-not-found");
    let nobody = service.client.get(QUERY, &[("idempotency-key", "k")]).await;
    nobody.assert_problem(400, "scope-missing");
}

#[tokio::test]
async fn an_incomplete_query_says_what_is_missing() {
    let service = Setup::new().counting().await;
    let ask =
        async |path: &'static str, headers: &[(&'static str, &str)]| service.client.get(path, headers).await;
    ask(QUERY, &[]).await.assert_problem(400, "key-missing");
    ask(QUERY, &[("idempotency-key", "a b")]).await.assert_problem(400, "key-invalid");
    ask("/_onlyonce/outcome", &[("idempotency-key", "k")]).await.assert_problem(400, "query-invalid");
    ask("/_onlyonce/outcome?path=/pay&method=%20", &[("idempotency-key", "k")])
        .await
        .assert_problem(400, "query-invalid");
    ask(QUERY, &[("idempotency-key", "k")]).await.assert_problem(404, "outcome-not-found");
}

#[tokio::test]
async fn keys_from_elsewhere_are_asked_for_in_the_usual_header_and_the_endpoint_can_be_switched_off() {
    let options = Options { key: KeyFrom::Json("/id".into()), ..Options::default() };
    let service = Setup::new().layer(|layer| layer.route("POST /pay", options)).counting().await;
    service.client.send(post("/pay").body("{\"id\":\"k\"}")).await;
    assert_eq!(service.client.get(QUERY, &[("idempotency-key", "k")]).await.json()["state"], "completed");

    let without = Setup::new().layer(|layer| layer.outcome_path(None)).counting().await;
    assert_eq!(without.client.get(QUERY, &[("idempotency-key", "k")]).await.status, 201);
}

#[tokio::test]
async fn an_axum_router_without_a_fallback_of_its_own_answers_outcome_queries() {
    let service =
        Setup::new().serve(|_| Router::new().route("/pay", axum::routing::post(async || "paid"))).await;
    service.client.send(post("/pay").key("k")).await;
    assert_eq!(service.client.get(QUERY, &[("idempotency-key", "k")]).await.json()["state"], "completed");
}
