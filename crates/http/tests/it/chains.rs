//! Layers behind layers: what one behind refuses for now is no answer to be kept, and a layer that is there twice runs a call once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post as handles;
use http::{HeaderMap, Response};
use onlyonce_core::token::{TokenKeys, Tokens};
use onlyonce_core::{Idempotency, MemoryStore, Operation, Scope};
use onlyonce_http::{IdempotencyLayer, Options, ProblemKind, ScopeFrom, TokenRule, problem};
use onlyonce_testkit::Ledger;
use tokio::net::TcpListener;

use crate::support::{Client, Setup, post};

/// A service that refuses its first call with this problem, and does the next.
async fn first_refused(kind: ProblemKind) -> crate::support::Service {
    let calls = Arc::new(AtomicUsize::new(0));
    Setup::new()
        .serve(move |ledger| {
            Router::new().fallback(move || {
                let (calls, ledger) = (Arc::clone(&calls), ledger.clone());
                async move {
                    if calls.fetch_add(1, Ordering::SeqCst) == 0 {
                        return problem::response(kind, &HeaderMap::new(), None).map(Body::from);
                    }
                    ledger.record("done", "").unwrap();
                    Response::new(Body::from("done"))
                }
            })
        })
        .await
}

#[tokio::test]
async fn what_a_layer_behind_refuses_for_now_is_not_kept_as_the_answer() {
    for kind in [
        ProblemKind::InProgress,
        ProblemKind::StoreUnavailable,
        ProblemKind::Overloaded,
        ProblemKind::Draining,
        ProblemKind::UpstreamUnreachable,
        ProblemKind::RolledBack,
    ] {
        let service = first_refused(kind).await;
        let first = service.client.send(post("/pay").key("k")).await;
        assert_eq!(first.header("onlyonce-outcome"), Some("release"), "{kind:?}");
        assert_eq!(service.client.send(post("/pay").key("k")).await.body, "done", "{kind:?}");
        assert!(service.client.send(post("/pay").key("k")).await.is_replay());
        assert_eq!(service.effects(), 1);
    }
}

#[tokio::test]
async fn what_nobody_knows_behind_nobody_knows_in_front() {
    for kind in [
        ProblemKind::OutcomeUnknown,
        ProblemKind::RecordUnreadable,
        ProblemKind::UpstreamFailed,
        ProblemKind::UpstreamTimeout,
        ProblemKind::HandlerFailed,
    ] {
        let service = first_refused(kind).await;
        service.client.send(post("/pay").key("k")).await;
        let again = service.client.send(post("/pay").key("k")).await;
        again.assert_problem(409, "outcome-unknown");
        assert!(!again.is_replay(), "{kind:?} is no answer");
        assert_eq!(service.effects(), 0);
    }
}

#[tokio::test]
async fn a_layer_that_is_there_twice_runs_a_call_with_a_token_once() {
    let made: [fn(Idempotency) -> Tokens; 3] =
        [|once| Tokens::signed(once, TokenKeys::random()), Tokens::stored, Tokens::delete_first];
    for tokens in made {
        let once = Idempotency::new(MemoryStore::new());
        let (tokens, ledger) = (tokens(once.clone()), Ledger::in_memory());
        let layer = || {
            let options = Options { token: Some(TokenRule::new(tokens.clone())), ..Options::default() };
            let builder = IdempotencyLayer::builder(once.clone(), ScopeFrom::header("x-user"));
            builder.route("POST /orders", options).build().unwrap()
        };
        let log = ledger.clone();
        let order = handles(async move || {
            log.record("order", "").unwrap();
            "done"
        });
        let app = Router::new().route("/orders", order).layer(layer()).layer(layer());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let action = Operation::http("POST", "/orders");
        let token = tokens.issue(&Scope::new("ann").unwrap(), &action).await.unwrap();
        let sent = || post("/orders").header("x-user", "ann").header("onlyonce-token", token.as_str());
        let first = tokio::time::timeout(Duration::from_secs(10), client.send(sent())).await.unwrap();
        assert_eq!((first.status.as_u16(), &*first.body), (200, &b"done"[..]), "{tokens:?}");
        client.send(sent()).await;
        assert_eq!(ledger.effects().unwrap().len(), 1, "{tokens:?}");
    }
}
