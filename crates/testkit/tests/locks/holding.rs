//! The watchdog, the local deadline, and the end of a lock.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::lock::{LockError, Release, RenewalFailure};
use parking_lot::Mutex;

use crate::world::*;

#[tokio::test]
async fn a_held_lock_is_renewed_for_as_long_as_its_guard_lives() {
    let world = World::new();
    let guard = world.locks.key("a").ttl(TTL).acquire().await.unwrap();
    world.pass(300).await;
    assert!(!guard.is_lost());
    assert!(guard.remaining() > TTL / 2, "{guard:?}");
    // At a third: every ten seconds, and not more often.
    assert!((29..=30).contains(&world.server.renewals()), "{}", world.server.renewals());
    assert!(matches!(world.elsewhere().key("a").acquire().await, Err(LockError::Busy { .. })));
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_watchdog_never_outlives_its_guard() {
    let world = World::new();
    let guard = world.locks.key("a").ttl(TTL).acquire().await.unwrap();
    world.pass(15).await;
    guard.release().await.unwrap();
    let dropped = world.locks.key("b").ttl(TTL).acquire().await.unwrap();
    drop(dropped);
    rest().await;
    let renewals = world.server.renewals();
    world.pass(120).await;
    assert_eq!(world.server.renewals(), renewals, "a renewal after the release");
    assert!(world.server.memory.is_empty());
}

#[tokio::test]
async fn a_renewal_on_its_way_does_not_follow_the_release() {
    let world = World::new();
    let guard = world.locks.key("a").ttl(TTL).acquire().await.unwrap();
    world.server.is(Mood::BlackHole);
    world.pass(11).await;
    assert_eq!(world.server.renewals(), 1);
    world.server.is(Mood::Fine);
    // It does not wait for the renewal that nobody answers.
    let released = tokio::time::timeout(Duration::from_secs(10), guard.release()).await;
    assert_eq!(released.unwrap().unwrap(), Release::Released);
    assert!(world.server.memory.is_empty());
}

#[tokio::test]
async fn lost_is_signalled_at_the_local_deadline_when_renewals_are_black_holed() {
    let world = World::new();
    let guard = world.locks.key("a").ttl(TTL).acquire().await.unwrap();
    let held = guard.held();
    let told = tokio::spawn(async move { held.lost().await });
    world.server.is(Mood::BlackHole);
    world.pass(29).await;
    assert!(!guard.is_lost() && !told.is_finished());
    world.pass(1).await;
    assert!(guard.is_lost());
    until("the holder is told", || told.is_finished()).await;
    assert_eq!(guard.remaining(), Duration::ZERO);
}

#[tokio::test]
async fn the_deadline_counts_from_when_the_request_was_sent() {
    let world = World::new();
    world.server.is(Mood::LosesReplies);
    let clock = world.clock.clone();
    let request = world.locks.key("a").ttl(TTL).acquire();
    let acquiring = tokio::spawn(request);
    until("a first copy", || world.server.acquires() > 0).await;
    world.server.is(Mood::Fine);
    // The repeat comes after a pause, and renews.
    clock.advance(SECOND);
    let guard = acquiring.await.unwrap().unwrap();
    assert!(guard.remaining() <= TTL, "{guard:?}");
    assert_eq!(world.server.memory.len(), 1);
}

#[tokio::test]
async fn a_failed_renewal_is_retried_and_reported_and_the_lock_survives() {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let hook = Arc::clone(&heard);
    let world = World::with(|builder| {
        builder.on_renewal_failure(move |failure| {
            let RenewalFailure::Unknown { key, remaining, error } = failure else { panic!("{failure:?}") };
            assert!(*remaining < TTL);
            hook.lock().push(format!("{key}: {error}"));
        })
    });
    let guard = world.locks.key("a").ttl(TTL).acquire().await.unwrap();
    world.server.is(Mood::Down);
    world.pass(15).await;
    world.server.is(Mood::Fine);
    world.pass(60).await;
    assert!(!guard.is_lost());
    let heard = heard.lock();
    assert!(heard.len() >= 2 && heard[0].starts_with("a: test: renew did not happen"), "{heard:?}");
}

#[tokio::test]
async fn a_lock_that_somebody_took_is_lost_at_the_next_renewal_and_the_hook_hears_it() {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let hook = Arc::clone(&heard);
    let world = World::with(|builder| {
        builder.on_renewal_failure(move |failure| {
            hook.lock().push(format!("{failure:?}"));
            panic!("a hook that panics does no harm");
        })
    });
    let guard = world.locks.key("a").ttl(TTL).acquire().await.unwrap();
    world.server.memory.clear();
    world.pass(11).await;
    assert!(guard.is_lost());
    assert!(heard.lock().iter().any(|failure| failure.starts_with("Lost")), "{heard:?}");
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyExpired);
}

#[tokio::test]
async fn max_hold_ends_the_renewal_and_the_lock() {
    let world = World::new();
    let guard = world.locks.key("a").ttl(TTL).max_hold(70 * SECOND).acquire().await.unwrap();
    world.pass(69).await;
    assert!(!guard.is_lost());
    world.pass(1).await;
    assert!(guard.is_lost());
    // The server agrees: nobody is kept out any longer than that.
    let next = world.elsewhere().key("a").acquire().await.unwrap();
    assert!(next.fence() > guard.fence());
    assert_eq!(guard.release().await.unwrap(), Release::TakenOver);
}

#[tokio::test]
async fn a_max_hold_below_the_ttl_is_the_ttl() {
    let world = World::new();
    let guard = world.locks.key("a").ttl(TTL).max_hold(5 * SECOND).acquire().await.unwrap();
    assert!(guard.remaining() <= 5 * SECOND);
    world.pass(5).await;
    assert!(guard.is_lost());
    assert_eq!(world.server.renewals(), 0);
    drop(world.elsewhere().key("a").acquire().await.unwrap());
}

#[tokio::test]
async fn the_three_results_of_a_release() {
    let world = World::new();
    let request = || world.locks.key("a").ttl(TTL).max_hold(TTL);
    assert_eq!(request().acquire().await.unwrap().release().await.unwrap(), Release::Released);
    let expired = request().acquire().await.unwrap();
    world.pass(31).await;
    assert_eq!(expired.release().await.unwrap(), Release::AlreadyExpired);
    let late = request().acquire().await.unwrap();
    world.pass(31).await;
    let _now = world.elsewhere().key("a").acquire().await.unwrap();
    assert_eq!(late.release().await.unwrap(), Release::TakenOver);
}

#[tokio::test]
async fn a_release_whose_reply_was_lost_is_released() {
    let world = World::new();
    let guard = world.locks.key("a").ttl(TTL).acquire().await.unwrap();
    world.server.is(Mood::LosesReplies);
    let releasing = tokio::spawn(guard.release());
    until("a first copy", || world.server.releases() > 0).await;
    world.server.is(Mood::Fine);
    world.clock.advance(SECOND);
    assert_eq!(releasing.await.unwrap().unwrap(), Release::Released);
}

#[tokio::test]
async fn work_is_told_that_its_lock_is_lost_and_its_answer_is_given_back() {
    let world = World::new();
    let run = world.locks.key("a").ttl(TTL).run(|held| async move {
        held.lost().await;
        held.fence()
    });
    let run = tokio::spawn(run);
    until("it runs", || world.server.memory.len() == 1).await;
    world.server.is(Mood::Down);
    world.pass(31).await;
    world.server.is(Mood::Fine);
    world.pass(5).await;
    assert!(run.await.unwrap().unwrap().0 > 0);
}

#[tokio::test]
async fn run_until_lost_stops_the_work() {
    let world = World::new();
    let run = world.locks.key("a").ttl(TTL).run_until_lost(|_| std::future::pending::<()>());
    let run = tokio::spawn(run);
    until("it runs", || world.server.memory.len() == 1).await;
    world.server.is(Mood::BlackHole);
    world.pass(31).await;
    assert!(matches!(run.await.unwrap(), Err(LockError::Lost)));
}

#[tokio::test]
async fn a_view_of_a_lock_knows_that_it_was_released() {
    let world = World::new();
    let guard = world.locks.key("a").acquire().await.unwrap();
    let held = guard.held();
    assert!(!held.is_lost());
    guard.release().await.unwrap();
    assert!(held.is_lost());
    held.lost().await;
}
