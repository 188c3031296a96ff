//! Waiting for a lock, beside others of this process and of another.

use std::sync::Arc;

use onlyonce_core::lock::LockError;
use parking_lot::Mutex;

use crate::world::*;

#[tokio::test]
async fn without_a_wait_it_is_tried_once_and_the_refusal_says_when_it_may_be_free() {
    let world = World::new();
    let _guard = world.locks.key("a").ttl(TTL).acquire().await.unwrap();
    for locks in [&world.locks, &world.elsewhere()] {
        let error = locks.key("a").acquire().await.unwrap_err();
        assert!(error.is_retryable());
        let LockError::Busy { free_in: Some(left), .. } = error else { panic!("{error:?}") };
        assert!(left <= TTL && left > TTL / 2, "{left:?}");
    }
}

#[tokio::test]
async fn the_wait_is_over_after_its_time_here_and_elsewhere() {
    let world = World::new();
    let guard = world.locks.key("a").ttl(TTL).acquire().await.unwrap();
    for locks in [world.locks.clone(), world.elsewhere()] {
        let waiting = tokio::spawn(locks.key("a").wait(5 * SECOND).acquire());
        rest().await;
        world.pass(4).await;
        assert!(!waiting.is_finished());
        world.pass(2).await;
        let error = waiting.await.unwrap().unwrap_err();
        assert!(matches!(&error, LockError::Busy { waited, .. } if *waited >= 5 * SECOND), "{error:?}");
    }
    drop(guard);
}

#[tokio::test]
async fn who_waits_in_this_process_is_served_in_order_and_only_the_head_asks() {
    let world = World::new();
    let order: Arc<Mutex<Vec<u32>>> = Arc::default();
    let guard = world.locks.key("a").acquire().await.unwrap();
    let mut waiters = Vec::new();
    for n in 0..20 {
        let (request, order) = (world.locks.key("a").wait(TTL), Arc::clone(&order));
        waiters.push(tokio::spawn(async move {
            let guard = request.acquire().await.unwrap();
            order.lock().push(n);
            guard.release().await.unwrap();
        }));
        rest().await;
    }
    assert_eq!(world.server.acquires(), 1, "those behind the holder ask nothing");
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*order.lock(), (0..20).collect::<Vec<_>>());
    assert_eq!(world.server.acquires(), 21, "one request each");
}

#[tokio::test]
async fn a_waiter_in_another_process_is_woken_by_the_release() {
    let world = World::new();
    let guard = world.locks.key("a").acquire().await.unwrap();
    let waiting = tokio::spawn(world.elsewhere().key("a").wait(TTL).acquire());
    until("it was told that it is taken", || world.server.acquires() == 2).await;
    rest().await;
    guard.release().await.unwrap();
    // Without any time passing.
    drop(waiting.await.unwrap().unwrap());
    assert_eq!(world.server.acquires(), 3);
}

#[tokio::test]
async fn a_waiter_that_gives_up_leaves_the_line() {
    let world = World::new();
    let guard = world.locks.key("a").acquire().await.unwrap();
    let impatient = tokio::spawn(world.locks.key("a").wait(TTL).acquire());
    rest().await;
    let patient = tokio::spawn(world.locks.key("a").wait(TTL).acquire());
    rest().await;
    impatient.abort();
    assert!(impatient.await.unwrap_err().is_cancelled());
    guard.release().await.unwrap();
    drop(patient.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_lost_lock_does_not_hold_up_the_line_behind_it() {
    let world = World::new();
    let lost = world.locks.key("a").ttl(TTL).acquire().await.unwrap();
    let waiting = tokio::spawn(world.locks.key("a").wait(120 * SECOND).acquire());
    rest().await;
    world.server.is(Mood::Down);
    world.pass(31).await;
    world.server.is(Mood::Fine);
    // The guard is still there, and knows that it holds nothing.
    assert!(lost.is_lost());
    world.pass(20).await;
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.fence() > lost.fence());
}

#[tokio::test]
async fn waiters_are_limited() {
    let world = World::with(|builder| builder.max_waiters(1));
    let _guard = world.locks.key("a").acquire().await.unwrap();
    let waiting = tokio::spawn(world.locks.key("a").wait(TTL).acquire());
    rest().await;
    let refused = world.locks.key("a").wait(TTL).acquire().await;
    assert!(matches!(refused, Err(LockError::TooManyWaiters)), "{refused:?}");
    waiting.abort();
}

#[tokio::test]
async fn a_server_that_is_down_is_asked_again_while_the_wait_lasts() {
    let world = World::new();
    world.server.is(Mood::Down);
    let refused = world.locks.key("a").acquire().await;
    assert!(matches!(refused, Err(LockError::Store(_))), "{refused:?}");
    let waiting = tokio::spawn(world.locks.key("a").wait(TTL).acquire());
    world.pass(5).await;
    assert!(!waiting.is_finished());
    world.server.is(Mood::Fine);
    world.pass(20).await;
    drop(waiting.await.unwrap().unwrap());
    world.server.is(Mood::Down);
    let waiting = tokio::spawn(world.locks.key("b").wait(TTL).acquire());
    rest().await;
    world.pass(45).await;
    assert!(matches!(waiting.await.unwrap(), Err(LockError::Store(_))));
}
