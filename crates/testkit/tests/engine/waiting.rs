//! Duplicates that wait for the call that runs, beside it in one process or at the store.

use std::time::Duration;

use onlyonce_core::{Answer, Refusal, Settings, StateKind};
use onlyonce_testkit::{Fault, Op};
use tokio::task::JoinHandle;

use crate::world::{Failed, KEY, LEASE, Paid, World, quiet};

const WAIT: Duration = Duration::from_secs(120);

fn patient() -> World {
    World::with(Settings { wait: WAIT, ..Settings::default() })
}

/// Calls that found somebody running: half of them beside it, half in another process.
async fn waiters(world: &World, count: usize) -> Vec<JoinHandle<Paid>> {
    let elsewhere = world.neighbour();
    let waiters = (0..count)
        .map(|n| {
            let world = if n % 2 == 0 { world.clone() } else { elsewhere.clone() };
            tokio::spawn(async move { world.call(KEY).run(world.effect(KEY)).await })
        })
        .collect();
    quiet().await;
    waiters
}

async fn heard(world: &World, waiters: Vec<JoinHandle<Paid>>) -> Vec<Paid> {
    let mut heard = Vec::new();
    for waiter in waiters {
        heard.push(world.in_time(waiter).await.unwrap());
    }
    heard
}

#[tokio::test]
async fn waiters_get_the_stored_answer() {
    let world = patient();
    let inside = world.clone();
    let (let_go, wait) = tokio::sync::oneshot::channel::<()>();
    let first = tokio::spawn(async move {
        let body = async {
            let _ = wait.await;
            inside.effect(KEY).await
        };
        inside.call(KEY).run(body).await
    });
    quiet().await;
    let waiters = waiters(&world, 10).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    let_go.send(()).unwrap();
    let receipt = first.await.unwrap().unwrap();
    quiet().await;
    assert!(waiters.iter().all(JoinHandle::is_finished), "no time had to pass");
    for answer in heard(&world, waiters).await {
        assert_eq!(answer.unwrap(), receipt);
    }
    assert_eq!(world.effects(), 1);
}

#[tokio::test]
async fn after_a_release_one_waiter_proceeds_and_the_others_are_told_that_it_runs() {
    let world = patient();
    let running = world.run_by_hand(KEY).await;
    let elsewhere = world.neighbour();
    let waiters: Vec<JoinHandle<Paid>> = (0..20)
        .map(|n| {
            let world = if n % 2 == 0 { world.clone() } else { elsewhere.clone() };
            tokio::spawn(async move {
                let body = async {
                    world.clock_sleep(Duration::from_secs(1)).await;
                    world.effect(KEY).await
                };
                world.call(KEY).run(body).await
            })
        })
        .collect();
    quiet().await;
    running.release().await.unwrap();
    let (mut proceeded, mut told) = (0, 0);
    for answer in heard(&world, waiters).await {
        match answer {
            Ok(_) => proceeded += 1,
            Err(Failed::Refused(Refusal::InProgress { .. })) => told += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((proceeded, told, world.effects()), (1, 19, 1));
}

#[tokio::test]
async fn waiters_are_let_go_when_the_lease_is_lost() {
    let world = patient();
    world.faults.always(Op::Renew, Fault::HangBefore);
    let running = world.run_by_hand(KEY).await;
    let waiters = waiters(&world, 10).await;
    world.pass(LEASE - Duration::from_millis(1)).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    world.pass(Duration::from_millis(1)).await;
    for answer in heard(&world, waiters).await {
        assert!(matches!(answer, Err(Failed::Refused(Refusal::Unknown { .. }))), "{answer:?}");
    }
    assert_eq!(world.effects(), 0);
    drop(running);
}

#[tokio::test]
async fn waiters_wait_no_longer_than_they_may_however_often_the_lease_is_renewed() {
    let world = patient();
    let running = world.run_by_hand(KEY).await;
    let waiters = waiters(&world, 10).await;
    let mut passed = Duration::ZERO;
    while passed + Duration::from_secs(1) < WAIT {
        world.pass(Duration::from_secs(1)).await;
        passed += Duration::from_secs(1);
    }
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "they gave up too early");
    world.pass(Duration::from_secs(1)).await;
    for answer in heard(&world, waiters).await {
        assert!(matches!(answer, Err(Failed::Refused(Refusal::InProgress { .. }))), "{answer:?}");
    }
    assert_eq!(world.kind(KEY).await, Some(StateKind::Running));
    running.release().await.unwrap();
}

#[tokio::test]
async fn waiters_at_the_store_wait_as_long_as_they_may_also_where_leases_are_short() {
    let lease = Duration::from_millis(300);
    let wait = Duration::from_secs(60);
    let world = World::with(Settings { wait, lease, ..Settings::default() });
    let running = world.run_by_hand(KEY).await;
    let elsewhere = world.neighbour();
    let waiter = tokio::spawn(async move { elsewhere.call(KEY).run(elsewhere.effect(KEY)).await });
    let nearly = async {
        for _ in 0..590 {
            world.clock_sleep(Duration::from_millis(100)).await;
        }
    };
    world.in_time(nearly).await;
    assert!(!waiter.is_finished(), "it gave up long before its time: {:?}", waiter.await);
    running.complete(Answer::none()).await.unwrap();
    let answer = world.in_time(waiter).await.unwrap();
    assert!(matches!(answer, Err(Failed::Refused(Refusal::Duplicate))), "{answer:?}");
}

#[tokio::test]
async fn a_waiter_that_goes_away_leaves_the_call_alone() {
    let world = patient();
    let running = world.run_by_hand(KEY).await;
    for waiter in waiters(&world, 4).await {
        waiter.abort();
    }
    quiet().await;
    assert_eq!(world.kind(KEY).await, Some(StateKind::Running));
    assert!(!running.permit().is_lost());
    running.release().await.unwrap();
}
