//! What can't be used, and what there is no room for, is refused before anything runs.

use std::collections::HashMap;
use std::sync::Arc;

use onlyonce_core::{Call, ErrorKind, ManualClock, MemoryStore, Refusal, Settings};
use onlyonce_testkit::Op;

use crate::world::{Failed, KEY, World};

async fn is_refused_as_input(world: &World, call: Call) {
    let heard = call.run(world.effect(KEY)).await;
    assert!(matches!(heard, Err(Failed::Refused(Refusal::Input(_)))), "{heard:?}");
    assert_eq!((world.effects(), world.faults.calls(Op::Begin)), (0, 0));
}

#[tokio::test]
async fn a_key_that_is_empty_or_too_long_is_refused() {
    let world = World::new();
    is_refused_as_input(&world, world.once.call("pay", "")).await;
    is_refused_as_input(&world, world.once.call("pay", "x".repeat(256))).await;
    assert!(world.once.call("pay", "x".repeat(255)).run(world.effect(KEY)).await.is_ok());
}

#[tokio::test]
async fn an_empty_scope_is_refused_because_it_would_mix_tenants() {
    let world = World::new();
    is_refused_as_input(&world, world.call(KEY).scope("")).await;
}

#[tokio::test]
async fn an_operation_without_a_name_is_refused() {
    let world = World::new();
    is_refused_as_input(&world, world.once.call("", KEY)).await;
}

#[tokio::test]
async fn an_input_that_has_no_fingerprint_is_refused() {
    let world = World::new();
    is_refused_as_input(&world, world.call(KEY).input(&HashMap::from([((1, 2), 3)]))).await;
}

#[tokio::test]
async fn a_full_store_lets_nothing_run_and_still_replays() {
    let clock = ManualClock::new();
    let memory = MemoryStore::new().max_records(2).with_clock(clock.clone());
    let world = World::on(Arc::new(memory), clock, Settings::default());
    let receipt = world.paid("a").await;
    world.paid("b").await;
    let Refusal::Store(error) = world.refused("c").await else { panic!("there is room") };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(world.paid("a").await, receipt);
    world.pass(world.once.settings().retain).await;
    world.paid("c").await;
}
