//! Duplicates at the same time.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use axum::Router;
use axum::extract::OriginalUri;
use axum::http::HeaderMap;
use onlyonce_core::{Mode, Settings};

use crate::support::{Gate, Service, Setup, effect, eventually, post};

/// A service whose handler waits at a gate before its effect.
async fn gated(setup: Setup, gate: &Gate) -> Service {
    let gate = gate.clone();
    setup
        .serve(move |ledger| {
            Router::new().fallback(move |OriginalUri(uri): OriginalUri, headers: HeaderMap| {
                let (gate, ledger) = (gate.clone(), ledger.clone());
                async move {
                    gate.pass().await;
                    let number = effect(&ledger, &headers, &uri);
                    let status = if headers.contains_key("x-busy") { 429 } else { 200 };
                    (http::StatusCode::from_u16(status).unwrap(), format!("effect {number}"))
                }
            })
        })
        .await
}

fn waiting(wait: Duration) -> Setup {
    Setup::new().settings(Settings { wait, ..Settings::default() })
}

#[tokio::test]
async fn a_duplicate_in_flight_is_told_to_come_back() {
    let gate = Gate::new();
    let service = gated(Setup::new(), &gate).await;
    let first = tokio::spawn({
        let client = service.client.clone();
        async move { client.send(post("/pay").key("k")).await }
    });
    gate.arrival().await;
    let duplicate = service.client.send(post("/pay").key("k")).await;
    let problem = duplicate.assert_problem(409, "in-progress");
    assert_eq!(problem["retryable"], true);
    assert!(duplicate.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    let mismatch = service.client.send(post("/pay").key("k").body("other")).await;
    mismatch.assert_problem(422, "payload-mismatch");
    gate.open(1);
    let first = first.await.unwrap();
    assert_eq!(first.status, 200);
    assert_eq!(service.client.send(post("/pay").key("k")).await.body, first.body);
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn in_reject_mode_a_duplicate_in_flight_is_a_duplicate() {
    let gate = Gate::new();
    let service =
        gated(Setup::new().settings(Settings { mode: Mode::Reject, ..Settings::default() }), &gate).await;
    let client = service.client.clone();
    let first = tokio::spawn(async move { client.send(post("/pay").key("k")).await });
    gate.arrival().await;
    service.client.send(post("/pay").key("k")).await.assert_problem(409, "duplicate");
    gate.open(1);
    assert_eq!(first.await.unwrap().status, 200);
}

#[tokio::test]
async fn with_wait_duplicates_coalesce_into_one_effect() {
    let gate = Gate::new();
    let service = gated(waiting(Duration::from_secs(60)), &gate).await;
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let client = service.client.clone();
            tokio::spawn(async move { client.send(post("/pay").key("k")).await })
        })
        .collect();
    gate.arrival().await;
    gate.open(1);
    let mut replays = 0;
    for call in calls {
        let answer = call.await.unwrap();
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"effect 1"[..]));
        replays += usize::from(answer.is_replay());
    }
    assert_eq!((service.effects(), replays), (1, 49));
}

#[tokio::test]
async fn waiting_ends_at_its_limit() {
    let gate = Gate::new();
    let service = gated(waiting(Duration::from_secs(5)), &gate).await;
    let client = service.client.clone();
    let first = tokio::spawn(async move { client.send(post("/pay").key("k")).await });
    gate.arrival().await;
    let client = service.client.clone();
    let second = tokio::spawn(async move { client.send(post("/pay").key("k")).await });
    let clock = service.clock.clone();
    eventually("the duplicate gives up", async || {
        clock.advance(Duration::from_secs(1));
        second.is_finished()
    })
    .await;
    second.await.unwrap().assert_problem(409, "in-progress");
    gate.open(1);
    assert_eq!(first.await.unwrap().status, 200);
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn when_the_first_is_released_one_waiter_proceeds_and_the_others_come_back() {
    let gate = Gate::new();
    let service = gated(waiting(Duration::from_secs(60)), &gate).await;
    let call = || {
        let client = service.client.clone();
        tokio::spawn(async move { client.send(post("/pay").key("k").header("x-busy", "1")).await })
    };
    let first = call();
    gate.arrival().await;
    let waiters: Vec<_> = (0..20).map(|_| call()).collect();
    eventually("all duplicates have come", async || service.once.in_flight() == 21).await;
    gate.open(1);
    assert_eq!(first.await.unwrap().status, 429);
    gate.arrival().await;
    eventually("the others are let go", async || {
        waiters.iter().filter(|waiter| waiter.is_finished()).count() == 19
    })
    .await;
    gate.open(1);
    let mut statuses = HashMap::new();
    for waiter in waiters {
        *statuses.entry(waiter.await.unwrap().status.as_u16()).or_insert(0) += 1;
    }
    assert_eq!(statuses, HashMap::from([(409, 19), (429, 1)]));
    assert_eq!(service.effects(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_duplicates_of_a_hundred_keys_have_a_hundred_effects() {
    let service = waiting(Duration::from_secs(60)).counting().await;
    let senders: Vec<_> = (0..100)
        .map(|sender| {
            let client = service.client.clone();
            tokio::spawn(async move {
                let mut answers = Vec::new();
                for n in 0..100 {
                    // Every sender starts elsewhere, so that all keys are hit at once.
                    let key = format!("key-{}", (sender + n) % 100);
                    answers.push((key.clone(), client.send(post("/pay").key(&key)).await));
                }
                answers
            })
        })
        .collect();
    let mut bodies: HashMap<String, HashSet<bytes::Bytes>> = HashMap::new();
    let mut first_runs = 0;
    for sender in senders {
        for (key, answer) in sender.await.unwrap() {
            assert_eq!(answer.status, 201);
            first_runs += usize::from(!answer.is_replay());
            bodies.entry(key).or_default().insert(answer.body);
        }
    }
    assert_eq!(service.effects(), 100);
    assert_eq!(first_runs, 100);
    assert_eq!(bodies.len(), 100);
    assert!(bodies.values().all(|answers| answers.len() == 1));
}
