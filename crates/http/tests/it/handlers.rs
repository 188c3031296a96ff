//! What a handler sees, and what happens when it fails or its client goes away.

use axum::http::{HeaderMap, Uri};
use axum::{Extension, Router};
use onlyonce_core::Permit;
use onlyonce_http::{IdempotencyLayer, Options, ScopeFrom, StoreDown};
use onlyonce_testkit::Ledger;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{Gate, Setup, effect, eventually, post, waiting_at};

#[tokio::test]
async fn a_handler_sees_its_permit() {
    let service = Setup::new()
        .serve(|_: Ledger| {
            Router::new().fallback(async |Extension(permit): Extension<Permit>| {
                format!("{} {} {}", permit.attempt(), permit.fence().0 > 0, permit.is_lost())
            })
        })
        .await;
    assert_eq!(service.client.send(post("/pay").key("k")).await.body, "1 true false");
}

#[tokio::test]
async fn a_panic_is_answered_and_leaves_doubt() {
    let service = Setup::new()
        .serve(|ledger| {
            Router::new().fallback(async move |uri: Uri, headers: HeaderMap| -> &'static str {
                effect(&ledger, &headers, &uri);
                panic!("charged, then fell over");
            })
        })
        .await;
    service.client.send(post("/pay").key("k")).await.assert_problem(500, "handler-failed");
    service.client.send(post("/pay").key("k")).await.assert_problem(409, "outcome-unknown");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn a_handler_goes_on_when_its_client_goes_away_and_the_retry_gets_its_answer() {
    let gate = Gate::new();
    let service = Setup::new()
        .serve({
            let gate = gate.clone();
            |ledger| {
                Router::new().fallback(move |uri: Uri, headers: HeaderMap| {
                    let (gate, ledger) = (gate.clone(), ledger.clone());
                    async move {
                        gate.pass().await;
                        format!("effect {}", effect(&ledger, &headers, &uri))
                    }
                })
            }
        })
        .await;
    let mut socket = TcpStream::connect(service.client.address).await.unwrap();
    socket.write_all(b"POST /pay HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\ncontent-length: 14\r\n\r\n{\"amount\":100}").await.unwrap();
    gate.arrival().await;
    drop(socket);
    gate.open(1);
    eventually("the answer is stored", async || service.once.in_flight() == 0).await;
    let retry = service.client.send(post("/pay").key("k")).await;
    assert!(retry.is_replay());
    assert_eq!(retry.body, "effect 1");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn draining_waits_for_calls_under_way_and_refuses_new_ones() {
    let gate = Gate::new();
    let service = Setup::new().serve(waiting_at(&gate)).await;
    let client = service.client.clone();
    let first = tokio::spawn(async move { client.send(post("/pay").key("k")).await });
    gate.arrival().await;
    let once = service.once.clone();
    let drain = tokio::spawn(async move { once.drain(std::time::Duration::from_secs(3600)).await });
    eventually("new calls are refused", async || {
        service.client.send(post("/pay").key("new")).await.status == 503
    })
    .await;
    assert!(!drain.is_finished());
    gate.open(1);
    assert_eq!(drain.await.unwrap(), onlyonce_core::Drained::Everything);
    assert_eq!(first.await.unwrap().body, "done");
}

#[tokio::test]
async fn a_closing_engine_does_not_fail_open() {
    let options = Options { store_down: StoreDown::FailOpen, ..Options::default() };
    let service = Setup::new().options(options).counting().await;
    service.client.send(post("/pay").key("k")).await;
    service.once.drain(std::time::Duration::from_secs(1)).await;
    service.client.send(post("/pay").key("k")).await.assert_problem(503, "store-unavailable");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn a_layer_that_is_there_twice_protects_once() {
    let once = onlyonce_core::Idempotency::new(onlyonce_core::MemoryStore::new());
    let layer = IdempotencyLayer::new(once, ScopeFrom::nobody());
    let service = Setup::new()
        .layer(|layer| layer.methods([]))
        .serve(move |ledger| crate::support::counting(ledger).layer(layer.clone()).layer(layer))
        .await;
    for replayed in [false, true] {
        let answer = service.client.send(post("/pay").key("k")).await;
        assert_eq!((answer.status.as_u16(), answer.is_replay()), (201, replayed));
    }
    assert_eq!(service.effects(), 1);
}
