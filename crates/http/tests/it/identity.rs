//! What makes two requests the same call: scope, method, path, key; and the same payload.

use axum::Router;
use axum::routing::post as route_post;
use http::Method;
use onlyonce_core::Scope;
use onlyonce_http::{Caller, FingerprintOf, MissingKey, Options, ScopeFrom};

use crate::support::{Setup, effect, post};

#[tokio::test]
async fn two_tenants_with_the_same_key_never_share_an_answer() {
    let service = Setup::new().scope(ScopeFrom::header("x-tenant")).counting().await;
    let a = service.client.send(post("/pay").key("k").header("x-tenant", "a")).await;
    let b = service.client.send(post("/pay").key("k").header("x-tenant", "b")).await;
    assert!(!b.is_replay());
    assert_ne!(a.body, b.body);
    assert_eq!(service.effects(), 2);
    let again = service.client.send(post("/pay").key("k").header("x-tenant", "a")).await;
    assert!(again.is_replay());
    assert_eq!(again.body, a.body);
}

#[tokio::test]
async fn a_caller_that_is_not_known_is_refused_and_nothing_runs() {
    let service = Setup::new().scope(ScopeFrom::header("x-tenant")).counting().await;
    service.client.send(post("/pay").key("k")).await.assert_problem(400, "scope-missing");
    service
        .client
        .send(post("/pay").key("k").header("x-tenant", ""))
        .await
        .assert_problem(400, "scope-missing");
    let twice = post("/pay").key("k").header("x-tenant", "a").header("x-tenant", "b");
    service.client.send(twice).await.assert_problem(400, "scope-missing");
    assert_eq!(service.effects(), 0);
    // Without a key there is nothing to keep apart.
    assert_eq!(service.client.send(post("/pay")).await.status, 201);
}

#[tokio::test]
async fn credentials_that_do_not_hold_are_denied_not_absent() {
    let scope =
        ScopeFrom::with(|parts| match parts.headers.get("authorization").map(|value| value.as_bytes()) {
            Some(b"good") => Caller::Known(Scope::new("user").unwrap()),
            Some(_) => Caller::Denied("the password is wrong".into()),
            None => Caller::Absent("there is no password".into()),
        });
    let service = Setup::new().scope(scope).counting().await;
    service
        .client
        .send(post("/pay").key("k").header("authorization", "bad"))
        .await
        .assert_problem(401, "scope-denied");
    service.client.send(post("/pay").key("k")).await.assert_problem(400, "scope-missing");
    assert_eq!(service.client.send(post("/pay").key("k").header("authorization", "good")).await.status, 201);
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn the_same_key_on_another_method_or_path_is_another_call() {
    let service = Setup::new().counting().await;
    service.client.send(post("/a").key("k")).await;
    assert!(!service.client.send(post("/b").key("k")).await.is_replay());
    assert!(!service.client.send(post("/a").method(Method::PATCH).key("k")).await.is_replay());
    assert_eq!(service.effects(), 3);
}

#[tokio::test]
async fn another_spelling_of_the_same_path_is_the_same_call_and_does_not_get_past_its_route() {
    let strict = Options { missing_key: MissingKey::Reject, ..Options::default() };
    let service = Setup::new().layer(move |layer| layer.route("POST /pay/{id}", strict)).counting().await;
    let first = service.client.send(post("/pay/a%2fb").key("k")).await;
    for path in ["/%70ay/a%2Fb", "/./pay/a%2fb", "/x/../pay/a%2Fb", "/pay/%61%2fb"] {
        let again = service.client.send(post(path).key("k")).await;
        assert!(again.is_replay() && again.body == first.body, "{path}");
        let missing = service.client.send(post(path)).await.assert_problem(400, "key-missing");
        assert!(missing["detail"].as_str().unwrap().contains("the header idempotency-key"), "{missing}");
    }
    let asked = "/_onlyonce/outcome?method=POST&path=/%2570ay/a%252fb";
    let outcome = service.client.get(asked, &[("idempotency-key", "k")]).await;
    assert_eq!(outcome.json()["state"], "completed");
    assert_eq!(service.effects(), 1);
    assert!(!service.client.send(post("/pay/a/b").key("k")).await.is_replay(), "a slash is not %2F");
}

#[tokio::test]
async fn nested_routers_do_not_share_records() {
    let service = Setup::new()
        .serve(|ledger| {
            let inner = |name: &'static str| {
                let ledger = ledger.clone();
                Router::new().route(
                    "/pay",
                    route_post(move |uri, headers| {
                        let ledger = ledger.clone();
                        async move {
                            effect(&ledger, &headers, &uri);
                            name
                        }
                    }),
                )
            };
            Router::new().nest("/a", inner("a")).nest("/b", inner("b"))
        })
        .await;
    assert_eq!(service.client.send(post("/a/pay").key("k")).await.body, "a");
    assert_eq!(service.client.send(post("/b/pay").key("k")).await.body, "b");
    assert_eq!(service.client.send(post("/a/pay").key("k")).await.body, "a");
    assert_eq!(service.effects(), 2);
}

#[tokio::test]
async fn a_layer_inside_a_nested_router_keeps_the_routers_apart() {
    let inside = |layer: &onlyonce_http::IdempotencyLayer, name: &'static str| {
        Router::new().route("/pay", route_post(move || async move { name })).layer(layer.clone())
    };
    let service = Setup::new()
        .layer(|layer| layer)
        .serve(move |_| {
            let once = onlyonce_core::Idempotency::new(onlyonce_core::MemoryStore::new());
            let layer = onlyonce_http::IdempotencyLayer::new(once, ScopeFrom::nobody());
            Router::new().nest("/a", inside(&layer, "a")).nest("/b", inside(&layer, "b"))
        })
        .await;
    assert_eq!(service.client.send(post("/a/pay").key("k1")).await.body, "a");
    assert_eq!(service.client.send(post("/b/pay").key("k1")).await.body, "b");
}

#[tokio::test]
async fn another_payload_under_the_same_key_is_a_mismatch() {
    let service = Setup::new().counting().await;
    service.client.send(post("/pay").key("k").body("{\"amount\":1}")).await;
    let changed = [
        post("/pay").key("k").body("{\"amount\":2}"),
        post("/pay?dry=1").key("k").body("{\"amount\":1}"),
        post("/pay").key("k").body("{\"amount\":1}").header("content-type", "text/plain"),
    ];
    for ask in changed {
        let problem = service.client.send(ask).await.assert_problem(422, "payload-mismatch");
        assert_eq!(problem["retryable"], false);
    }
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn a_fingerprint_of_chosen_members_ignores_the_rest() {
    let options = Options {
        fingerprint: FingerprintOf::Json(vec!["/amount".into(), "/to".into()]),
        ..Options::default()
    };
    let service = Setup::new().options(options).counting().await;
    let pay = |body: &'static str| service.client.send(post("/pay").key("k").body(body));
    assert_eq!(pay(r#"{"amount":1,"to":"x","sent_at":1}"#).await.status, 201);
    assert!(pay(r#"{"sent_at":2, "to":"x", "amount":1}"#).await.is_replay());
    pay(r#"{"amount":2,"to":"x"}"#).await.assert_problem(422, "payload-mismatch");
    pay(r#"{"amount":1}"#).await.assert_problem(422, "payload-mismatch");
    pay("no json").await.assert_problem(400, "body-invalid");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn chosen_members_are_compared_exactly_and_what_two_parsers_read_differently_is_refused() {
    let options = Options { fingerprint: FingerprintOf::Json(vec!["/amount".into()]), ..Options::default() };
    let service = Setup::new().options(options).counting().await;
    let pay = |key: &str, body: &str| service.client.send(post("/pay").key(key).body(body.to_owned()));
    for (key, one, other) in [
        ("integers", "100000000000000000000", "100000000000000000001"),
        ("fractions", "0.1", "0.10000000000000000001"),
        ("doubles", "9007199254740992", "9007199254740993"),
    ] {
        assert_eq!(pay(key, &format!(r#"{{"amount":{one}}}"#)).await.status, 201);
        assert!(pay(key, &format!(r#"{{"at":1,"amount":{one}}}"#)).await.is_replay());
        pay(key, &format!(r#"{{"amount":{other}}}"#)).await.assert_problem(422, "payload-mismatch");
    }
    for unclear in [
        r#"{"amount":1,"amount":2}"#,
        r#"{"amount":1,"Amount":2}"#,
        r#"{"AMOUNT":1}"#,
        r#"{"amount":1,"note":{"x":1,"x":1}}"#,
        r#"{"amount":1e999}"#,
    ] {
        let problem = pay("unclear", unclear).await.assert_problem(400, "body-invalid");
        assert_eq!(problem["retryable"], false, "{unclear}");
    }
    assert_eq!(pay("unclear", r#"{"amount":1}"#).await.status, 201, "the key was not used up");
    assert_eq!(service.effects(), 4);
}

#[tokio::test]
async fn a_member_of_the_fingerprint_that_the_query_says_differently_runs_nothing() {
    let options = Options { fingerprint: FingerprintOf::Json(vec!["/amount".into()]), ..Options::default() };
    let service = Setup::new().options(options).counting().await;
    for query in ["amount=5", "amount[]=100", "Amount=100", "amount=100&amount=5"] {
        let told = service.client.send(post(&format!("/pay?{query}")).key("k")).await;
        let told = told.assert_problem(400, "body-invalid");
        assert!(told["detail"].as_str().unwrap().contains("in the query and in the body"), "{told}");
    }
    assert_eq!(service.effects(), 0);
    assert_eq!(service.client.send(post("/pay?amount=100").key("k")).await.status, 201);
}

#[tokio::test]
async fn a_member_of_the_fingerprint_that_only_the_query_says_runs_nothing() {
    let pointers = vec!["/amount".into(), "/order/item".into()];
    let options = Options { fingerprint: FingerprintOf::Json(pointers), ..Options::default() };
    let service = Setup::new().options(options).counting().await;
    let send = |path: &str, body: &str| service.client.send(post(path).key("k").body(body.to_owned()));
    for (query, body) in [
        ("amount=10", r#"{"x":1}"#),
        ("amount=10", r#"{"amount":null}"#),
        ("amount[]=10", r#"{"x":1}"#),
        ("a=1;amount=10", "{}"),
        ("order[item]=7", r#"{"amount":1}"#),
        ("order[item]=7", r#"{"amount":1,"order":{"item":8}}"#),
    ] {
        let told = send(&format!("/pay?{query}"), body).await.assert_problem(400, "body-invalid");
        assert!(told["detail"].as_str().unwrap().contains("in the query"), "{query} {body}: {told}");
    }
    assert_eq!(service.effects(), 0);
    assert_eq!(send("/pay?x=1", r#"{"y":1}"#).await.status, 201);
}
