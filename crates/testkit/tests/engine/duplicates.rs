//! Many at once.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use onlyonce_core::{Mode, Refusal, Settings};
use tokio::task::JoinSet;

use crate::world::{Failed, KEY, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_duplicates_over_a_hundred_keys_have_a_hundred_effects_and_one_answer_each() {
    const KEYS: usize = 100;
    const COPIES: usize = 100;
    let world = World::with(Settings { wait: Duration::from_secs(3600), ..Settings::default() });
    let mut calls = JoinSet::new();
    for n in 0..KEYS * COPIES {
        let world = world.clone();
        calls.spawn(async move {
            let key = format!("order-{}", n % KEYS);
            let body = async {
                // Real time, so that duplicates of every key come while it runs.
                tokio::time::sleep(Duration::from_millis(200)).await;
                world.effect(&key).await
            };
            let receipt = world.call(&key).run(body).await.expect("a receipt");
            (key, receipt)
        });
    }
    let mut answers: HashMap<String, HashSet<String>> = HashMap::new();
    let all = calls.join_all().await;
    assert_eq!(all.len(), KEYS * COPIES);
    for (key, receipt) in all {
        answers.entry(key).or_default().insert(receipt);
    }
    assert_eq!(world.effects(), KEYS);
    assert_eq!(answers.len(), KEYS);
    assert!(answers.values().all(|receipts| receipts.len() == 1), "a key has two answers");
}

#[tokio::test]
async fn a_retry_gets_the_first_answer() {
    let world = World::new();
    let first = world.paid(KEY).await;
    for _ in 0..3 {
        assert_eq!(world.paid(KEY).await, first);
    }
    assert_eq!(world.effects(), 1);
    assert_ne!(world.paid("order-43").await, first);
}

#[tokio::test]
async fn the_same_key_of_another_scope_or_operation_is_another_call() {
    let world = World::new();
    world.paid(KEY).await;
    let scoped = world.call(KEY).scope("tenant-7").run(world.effect(KEY)).await;
    let refunded = world.once.call("refund", KEY).input(&100).run(world.effect(KEY)).await;
    assert!(scoped.is_ok() && refunded.is_ok());
    assert_eq!(world.effects(), 3);
}

#[tokio::test]
async fn without_a_wait_a_duplicate_is_told_that_it_runs() {
    let world = World::new();
    let running = world.run_by_hand(KEY).await;
    for engine in [&world, &world.neighbour()] {
        let refusal = engine.refused(KEY).await;
        assert!(matches!(refusal, Refusal::InProgress { .. }) && refusal.is_retryable(), "{refusal:?}");
    }
    drop(running);
}

#[tokio::test]
async fn in_reject_mode_duplicates_are_refused_while_it_runs_and_after() {
    let world = World::with(Settings { mode: Mode::Reject, ..Settings::default() });
    let running = world.run_by_hand(KEY).await;
    assert!(matches!(world.refused(KEY).await, Refusal::Duplicate));
    assert!(matches!(world.neighbour().refused(KEY).await, Refusal::Duplicate));
    running.release().await.unwrap();
    world.paid(KEY).await;
    assert!(matches!(world.refused(KEY).await, Refusal::Duplicate));
    assert!(world.stored(KEY).await.unwrap().is_none(), "an answer was stored");
}

#[tokio::test]
async fn in_reject_mode_a_failed_call_may_be_made_again() {
    let world = World::with(Settings { mode: Mode::Reject, ..Settings::default() });
    let failed: Result<String, _> = world.call(KEY).run(async { Err(Failed::Down) }).await;
    assert!(matches!(failed, Err(Failed::Down)));
    world.paid(KEY).await;
}
