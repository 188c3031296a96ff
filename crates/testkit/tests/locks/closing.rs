//! Leaving in order.

use onlyonce_core::Drained;
use onlyonce_core::lock::{LockError, Release};

use crate::world::*;

#[tokio::test]
async fn closing_refuses_new_ones_sends_waiters_away_and_waits_for_guards() {
    let world = World::new();
    let guard = world.locks.key("a").acquire().await.unwrap();
    let here = tokio::spawn(world.locks.key("a").wait(TTL).acquire());
    let other = world.elsewhere().key("b").acquire().await.unwrap();
    let there = tokio::spawn(world.locks.key("b").wait(TTL).acquire());
    rest().await;
    let locks = world.locks.clone();
    let closing = tokio::spawn(async move { locks.close(60 * SECOND).await });
    assert!(matches!(here.await.unwrap(), Err(LockError::Closed)));
    assert!(matches!(there.await.unwrap(), Err(LockError::Closed)));
    let late = world.locks.key("c").acquire().await;
    assert!(matches!(late, Err(LockError::Closed)), "{late:?}");
    assert!(!closing.is_finished());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    assert_eq!(closing.await.unwrap(), Drained::Everything);
    drop(other);
}

#[tokio::test]
async fn closing_waits_for_what_was_dropped() {
    let world = World::new();
    let guard = world.locks.key("a").acquire().await.unwrap();
    drop(guard);
    assert_eq!(world.locks.close(60 * SECOND).await, Drained::Everything);
    assert!(world.server.memory.is_empty());
}

#[tokio::test]
async fn a_limit_ends_the_wait_and_says_how_many_are_left() {
    let world = World::new();
    let guard = world.locks.key("a").ttl(TTL).acquire().await.unwrap();
    let locks = world.locks.clone();
    let closing = tokio::spawn(async move { locks.close(5 * SECOND).await });
    rest().await;
    world.pass(6).await;
    assert_eq!(closing.await.unwrap(), Drained::Left(1));
    // Its work goes on, so it is still kept.
    world.pass(60).await;
    assert!(!guard.is_lost());
}
