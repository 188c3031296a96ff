//! Stores that fail: before and after begin, before and after settle, and with records that can't be read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::{Answer, Clock, ManualClock, MemoryStore, Resolution, Settings, Settled, State};
use onlyonce_http::{Options, StoreDown};
use onlyonce_testkit::{Fault, FaultyStore, Op};

use crate::support::{Service, Setup, answering, eventually, post};

/// A service on a store that fails as told.
async fn faulty(options: Options) -> (Service, Arc<FaultyStore>) {
    let setup = Setup::new();
    let clock = setup.clock();
    let inner = Arc::new(MemoryStore::new().with_clock(clock.clone()));
    let store = Arc::new(FaultyStore::new(inner).with_clock(clock));
    (setup.store(Arc::clone(&store) as _).options(options).counting().await, store)
}

/// Lets the engine's own pauses pass while `call` runs.
async fn while_time_passes<T>(clock: &ManualClock, call: impl Future<Output = T>) -> T {
    let mut call = std::pin::pin!(call);
    loop {
        tokio::select! {
            done = &mut call => return done,
            () = tokio::time::sleep(Duration::from_millis(2)) => clock.advance(Duration::from_millis(100)),
        }
    }
}

#[tokio::test]
async fn a_store_down_at_begin_refuses_and_the_handler_is_not_called() {
    let (service, store) = faulty(Options::default()).await;
    store.always(Op::Begin, Fault::Unavailable);
    let refused = service.client.send(post("/pay").key("k")).await;
    let problem = refused.assert_problem(503, "store-unavailable");
    assert_eq!(problem["retryable"], true);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(service.effects(), 0);
    store.heal();
    assert_eq!(service.client.send(post("/pay").key("k")).await.status, 201);
}

#[tokio::test]
async fn a_lost_reply_to_begin_is_recognised_and_the_call_runs_once() {
    let (service, store) = faulty(Options::default()).await;
    store.next(Op::Begin, Fault::ReplyLost, 2);
    let first = while_time_passes(&service.clock, service.client.send(post("/pay").key("k"))).await;
    assert_eq!((first.status.as_u16(), first.is_replay()), (201, false));
    assert!(service.client.send(post("/pay").key("k")).await.is_replay());
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn a_begin_that_stays_ambiguous_refuses_and_frees_the_key() {
    let (service, store) = faulty(Options::default()).await;
    store.always(Op::Begin, Fault::ReplyLost);
    let refused = while_time_passes(&service.clock, service.client.send(post("/pay").key("k"))).await;
    refused.assert_problem(503, "store-unavailable");
    assert_eq!(service.effects(), 0);
    store.heal();
    let clock = service.clock.clone();
    eventually("the key is free", async || {
        clock.advance(Duration::from_millis(100));
        service.client.send(post("/pay").key("k")).await.status == 201
    })
    .await;
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn failing_open_must_be_asked_for_and_is_marked() {
    let (service, store) = faulty(Options { store_down: StoreDown::FailOpen, ..Options::default() }).await;
    store.always(Op::Begin, Fault::Unavailable);
    for effects in 1..=2 {
        let answer = service.client.send(post("/pay").key("k")).await;
        assert_eq!((answer.status.as_u16(), answer.header("onlyonce-fail-open")), (201, Some("true")));
        assert_eq!(service.effects(), effects);
    }
    store.heal();
    let protected = service.client.send(post("/pay").key("k")).await;
    assert_eq!((protected.is_replay(), protected.header("onlyonce-fail-open")), (false, None));
}

#[tokio::test]
async fn a_lost_reply_to_settle_is_repeated_and_the_answer_is_stored() {
    let (service, store) = faulty(Options::default()).await;
    store.next(Op::Settle, Fault::ReplyLost, 2);
    let first = while_time_passes(&service.clock, service.client.send(post("/pay").key("k"))).await;
    assert_eq!((first.status.as_u16(), first.header("idempotency-stored")), (201, None));
    let again = service.client.send(post("/pay").key("k")).await;
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));
}

#[tokio::test]
async fn a_store_down_at_settle_lets_the_answer_out_marked_and_stores_it_later() {
    let (service, store) = faulty(Options::default()).await;
    store.always(Op::Settle, Fault::Unavailable);
    let first = while_time_passes(&service.clock, service.client.send(post("/pay").key("k"))).await;
    assert_eq!((first.status.as_u16(), first.header("idempotency-stored")), (201, Some("false")));
    service.client.send(post("/pay").key("k")).await.assert_problem(409, "in-progress");
    store.heal();
    let clock = service.clock.clone();
    eventually("the answer is stored", async || {
        clock.advance(Duration::from_secs(1));
        service.once.in_flight() == 0
    })
    .await;
    let again = service.client.send(post("/pay").key("k")).await;
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn a_full_store_refuses_and_nothing_is_lost() {
    let setup = Setup::new();
    let store = MemoryStore::new().with_clock(setup.clock()).max_records(1);
    let service = setup.store(Arc::new(store)).counting().await;
    let first = service.client.send(post("/pay").key("a")).await;
    service.client.send(post("/pay").key("b")).await.assert_problem(503, "store-unavailable");
    assert_eq!(service.client.send(post("/pay").key("a")).await.body, first.body);
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn a_corrupt_record_is_never_run_again_not_even_failing_open() {
    let (service, store) = faulty(Options { store_down: StoreDown::FailOpen, ..Options::default() }).await;
    store.always(Op::Begin, Fault::Corrupt);
    let problem = service.client.send(post("/pay").key("k")).await.assert_problem(503, "record-unreadable");
    assert_eq!(problem["retryable"], false);
    assert_eq!(service.effects(), 0);
}

#[tokio::test]
async fn an_answer_of_an_unknown_version_is_refused_and_never_run_again() {
    let service = Setup::new().serve(answering(|| http::StatusCode::BAD_GATEWAY)).await;
    service.client.send(post("/pay").key("k")).await;
    let problem = service.client.send(post("/pay").key("k")).await.assert_problem(409, "outcome-unknown");
    let id = problem["record"].as_str().unwrap().parse().unwrap();
    let seen = service.once.outcome(&id).await.unwrap().unwrap();
    assert!(matches!(seen.state, State::Lapsed { .. }));
    let newer = Answer(Bytes::from_static(b"H\x63from the future"));
    assert_eq!(
        service.once.resolve(&id, seen.fence, Resolution::Happened(newer)).await.unwrap(),
        Settled::Applied
    );
    service.client.send(post("/pay").key("k")).await.assert_problem(503, "record-unreadable");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn a_lease_lost_while_running_is_seen_by_the_handler_before_it_answers() {
    let setup = Setup::new();
    let clock = setup.clock();
    let inner = Arc::new(MemoryStore::new().with_clock(clock.clone()));
    let store = Arc::new(FaultyStore::new(inner).with_clock(clock));
    store.always(Op::Renew, Fault::HangBefore);
    let service = setup
        .store(store)
        .settings(Settings::default())
        .serve(|ledger| {
            axum::Router::new().fallback(
                async move |axum::Extension(permit): axum::Extension<onlyonce_core::Permit>| {
                    permit.lost().await;
                    ledger.record("k", "stopped before the effect").unwrap();
                    http::StatusCode::SERVICE_UNAVAILABLE
                },
            )
        })
        .await;
    let client = service.client.clone();
    let first = tokio::spawn(async move { client.send(post("/pay").key("k")).await });
    let clock = service.clock.clone();
    let before = clock.now();
    eventually("the handler is told", async || {
        clock.advance(Duration::from_secs(1));
        service.effects() == 1
    })
    .await;
    // At the local deadline, although no reply ever came: not at some later one.
    assert!(clock.now().since(before) >= Duration::from_secs(30));
    assert_eq!(first.await.unwrap().status, 503);
}

#[tokio::test]
async fn an_answer_that_the_store_refuses_is_given_once_and_a_retry_hears_that_it_was_done() {
    let (service, store) = faulty(Options::default()).await;
    store.next(Op::Settle, Fault::Rejected, 1);
    assert_eq!(service.client.send(post("/pay").key("k")).await.status, 201);
    for _ in 0..2 {
        let again = service.client.send(post("/pay").key("k")).await;
        assert_eq!(again.assert_problem(409, "response-not-retained")["retryable"], false);
    }
    assert_eq!(service.effects(), 1);
}
