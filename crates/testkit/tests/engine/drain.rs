//! A process that leaves without abandoning its calls.

use std::time::Duration;

use onlyonce_core::{Drained, ErrorKind, Refusal, StateKind};
use onlyonce_testkit::{Fault, Op};

use crate::world::{KEY, World, quiet};

const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_drain_waits_for_the_calls_under_way_and_refuses_new_ones() {
    let world = World::new();
    let running = world.run_by_hand(KEY).await;
    assert_eq!(world.once.in_flight(), 1);
    let drained = {
        let once = world.once.clone();
        tokio::spawn(async move { once.drain(LIMIT).await })
    };
    quiet().await;
    assert!(!drained.is_finished());
    let Refusal::Store(error) = world.refused("order-43").await else { panic!("not refused by the engine") };
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!(world.kind("order-43").await, None);
    running.release().await.unwrap();
    assert_eq!(drained.await.unwrap(), Drained::Everything);
    assert_eq!(world.once.in_flight(), 0);
    world.neighbour().paid("order-43").await;
}

#[tokio::test]
async fn after_its_limit_a_drain_says_how_many_are_left() {
    let world = World::new();
    let left = [world.run_by_hand("a").await, world.run_by_hand("b").await];
    let once = world.once.clone();
    let drained = tokio::spawn(async move { once.drain(LIMIT).await });
    quiet().await;
    world.pass(LIMIT).await;
    assert_eq!(drained.await.unwrap(), Drained::Left(2));
    drop(left);
}

#[tokio::test]
async fn a_drain_waits_for_answers_that_are_not_stored_yet() {
    let world = World::new();
    world.faults.always(Op::Settle, Fault::Unavailable);
    let receipt = world.paid(KEY).await;
    let once = world.once.clone();
    let drained = tokio::spawn(async move { once.drain(Duration::from_secs(3600)).await });
    quiet().await;
    assert!(!drained.is_finished());
    world.faults.heal();
    assert_eq!(world.in_time(drained).await.unwrap(), Drained::Everything);
    assert_eq!(world.kind(KEY).await, Some(StateKind::Completed));
    assert_eq!(world.neighbour().paid(KEY).await, receipt);
}

#[tokio::test]
async fn an_idle_engine_is_drained_at_once() {
    let world = World::new();
    world.paid(KEY).await;
    assert_eq!(world.once.drain(LIMIT).await, Drained::Everything);
}
