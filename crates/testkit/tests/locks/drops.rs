//! What is dropped half-way is given back.

use futures_util::FutureExt as _;
use onlyonce_core::lock::LockError;

use crate::world::*;

#[tokio::test]
async fn a_dropped_guard_is_released_in_the_background() {
    let world = World::new();
    let guard = world.locks.key("a").ttl(TTL).acquire().await.unwrap();
    drop(guard);
    until("it is free", || world.server.memory.is_empty()).await;
}

#[tokio::test]
async fn a_dropped_guard_is_released_when_the_server_is_back() {
    let world = World::new();
    let guard = world.locks.key("a").ttl(TTL).acquire().await.unwrap();
    world.server.is(Mood::Down);
    drop(guard);
    world.pass(3).await;
    assert_eq!(world.server.memory.len(), 1);
    world.server.is(Mood::Fine);
    world.pass(20).await;
    assert!(world.server.memory.is_empty());
}

#[tokio::test]
async fn an_acquire_dropped_before_its_reply_is_released() {
    let world = World::new();
    world.server.is(Mood::NeverReplies);
    let mut acquiring = Box::pin(world.locks.key("a").ttl(TTL).acquire());
    assert!((&mut acquiring).now_or_never().is_none());
    assert_eq!(world.server.memory.len(), 1, "it is taken, and nobody knows");
    world.server.is(Mood::Fine);
    drop(acquiring);
    until("it is free", || world.server.memory.is_empty()).await;
}

#[tokio::test]
async fn an_acquire_whose_reply_stays_lost_is_released() {
    let world = World::new();
    world.server.is(Mood::LosesReplies);
    let acquiring = tokio::spawn(world.locks.key("a").ttl(TTL).acquire());
    world.pass(60).await;
    assert!(matches!(acquiring.await.unwrap(), Err(LockError::Store(_))));
    world.server.is(Mood::Fine);
    world.pass(15).await;
    assert!(world.server.memory.is_empty());
}

#[tokio::test]
async fn a_lost_reply_to_an_acquire_is_resolved_by_asking_again() {
    let world = World::new();
    world.server.is(Mood::LosesReplies);
    let acquiring = tokio::spawn(world.locks.key("a").ttl(TTL).acquire());
    until("a first copy", || world.server.acquires() > 0).await;
    world.server.is(Mood::Fine);
    world.pass(1).await;
    let guard = acquiring.await.unwrap().unwrap();
    assert!(!guard.is_lost());
}

#[tokio::test]
async fn ten_thousand_dropped_acquires_leave_nothing() {
    let world = World::new();
    for n in 0..10_000 {
        world.server.is(if n % 2 == 0 { Mood::NeverReplies } else { Mood::BlackHole });
        let mut acquiring = Box::pin(world.locks.key(format!("k{}", n % 100)).ttl(TTL).wait(TTL).acquire());
        let _ = (&mut acquiring).now_or_never();
        world.server.is(Mood::Fine);
        drop(acquiring);
        if n % 100 == 0 {
            rest().await;
        }
    }
    // Those that never landed are looked for until their ttl is over.
    for _ in 0..35 {
        world.pass(1).await;
    }
    until("nothing is held", || world.server.memory.is_empty()).await;
    world.locks.close(SECOND).await;
}

#[tokio::test]
async fn work_that_panics_leaves_no_lock() {
    let world = World::new();
    let run = world.locks.key("a").ttl(TTL).run(|_| async { panic!("on purpose") });
    let run = tokio::spawn(async move {
        let _: Result<(), _> = run.await;
    });
    assert!(run.await.unwrap_err().is_panic());
    until("it is free", || world.server.memory.is_empty()).await;
}
