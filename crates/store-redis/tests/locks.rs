//! Locks on a real Redis: what is dropped, who waits, and a server that stops, dies and comes back.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::servers::Redis;
use common::*;
use onlyonce_core::Drained;
use onlyonce_core::lock::{LockError, Locks, Release, RenewalFailure};
use onlyonce_store_redis::{RedisLocks, RedisStore};
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

async fn locks(url: impl Into<String>, prefix: &str) -> Locks {
    Locks::new(RedisLocks::builder(url).prefix(prefix).open_locks().await.unwrap())
}

/// How often the server was asked to run a script.
fn scripts(redis: &Redis) -> u32 {
    let stats = redis.ask("info commandstats");
    let calls = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
    };
    calls("evalsha") + calls("eval")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_dropped_acquires_leave_no_key() {
    let redis = Redis::start(&[]).await;
    let locks = locks(redis.url(), "t:").await;
    let mut granted = 0;
    for round in 0..100 {
        let tasks: Vec<_> = (0..100)
            .map(|n| {
                // Some alone, some in each other's way.
                let name = if n % 2 == 0 { format!("own:{round}:{n}") } else { format!("shared:{}", n % 7) };
                let request = locks.key(name).ttl(MINUTE).wait(MINUTE);
                let patience = Duration::from_micros(rand::random_range(0..3_000));
                tokio::spawn(async move { timeout(patience, request.acquire()).await.is_ok() })
            })
            .collect();
        for task in tasks {
            granted += u32::from(task.await.unwrap());
        }
    }
    assert!(granted > 100 && granted < 9_900, "{granted} of 10,000 came in time: nothing was shown");
    assert_eq!(locks.close(MINUTE).await, Drained::Everything);
    let left = redis.ask("keys t:lock:*");
    assert_eq!(left.trim(), "", "keys were left behind");
}

#[tokio::test]
async fn a_release_wakes_who_waits_and_nobody_polls() {
    let redis = Redis::start(&[]).await;
    let (here, there) = (locks(redis.url(), "t:").await, locks(redis.url(), "t:").await);
    let guard = here.key("a").ttl(MINUTE).acquire().await.unwrap();
    let waiting = tokio::spawn(there.key("a").ttl(MINUTE).wait(MINUTE).acquire());
    // Told that it is taken, and enlisted.
    common::servers::until("it waits", || redis.ask("get t:lock:{*}a").is_empty() || scripts(&redis) >= 3)
        .await;
    sleep(SECOND / 2).await;
    let before = scripts(&redis);
    sleep(2 * SECOND).await;
    assert_eq!(scripts(&redis), before, "somebody asked while there was nothing to hear");
    let released = Instant::now();
    guard.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(released.elapsed() < 4 * SECOND, "it was not woken, it looked: {:?}", released.elapsed());
    // The release, and the acquire that it woke; with the whole script where it was not known yet.
    let asked = scripts(&redis) - before;
    assert!((2..=3).contains(&asked), "{asked} scripts for one hand-over");
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn the_watchdog_keeps_a_lock_beyond_its_ttl_and_ends_with_its_guard() {
    let redis = Redis::start(&[]).await;
    let (here, there) = (locks(redis.url(), "t:").await, locks(redis.url(), "t:").await);
    let guard = here.key("a").ttl(3 * SECOND).acquire().await.unwrap();
    sleep(8 * SECOND).await;
    assert!(!guard.is_lost());
    let refused = there.key("a").acquire().await;
    let Err(LockError::Busy { free_in: Some(left), .. }) = refused else { panic!("{refused:?}") };
    assert!(left <= 3 * SECOND);
    drop(guard);
    here.close(MINUTE).await;
    let before = scripts(&redis);
    sleep(4 * SECOND).await;
    assert_eq!(scripts(&redis), before, "a renewal after the release");
    drop(there.key("a").acquire().await.unwrap());
}

#[tokio::test]
async fn release_says_whether_the_lock_was_held_to_the_end() {
    let prefix = prefix();
    let (here, there) = (locks(url(), &prefix).await, locks(url(), &prefix).await);
    let guard = here.key("a").acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let short = || here.key("a").ttl(SECOND / 2).max_hold(SECOND / 2);
    let guard = short().acquire().await.unwrap();
    guard.lost().await;
    sleep(SECOND / 5).await;
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyExpired);
    let late = short().acquire().await.unwrap();
    late.lost().await;
    let next = there.key("a").wait(MINUTE).acquire().await.unwrap();
    assert!(next.fence() > late.fence());
    assert_eq!(late.release().await.unwrap(), Release::TakenOver);
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn lost_is_signalled_at_the_local_deadline_while_the_server_stands_still() {
    let redis = Redis::start(&[]).await;
    let failures = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&failures);
    let backend = RedisLocks::builder(redis.url()).response_timeout(SECOND / 2).open_locks().await.unwrap();
    let locks = Locks::builder(backend)
        .on_renewal_failure(move |failure| {
            if matches!(failure, RenewalFailure::Unknown { .. }) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        })
        .build();
    let ttl = 6 * SECOND;
    let asked = Instant::now();
    let guard = locks.key("a").ttl(ttl).acquire().await.unwrap();
    redis.freeze();
    guard.lost().await;
    let after = asked.elapsed();
    assert!(after >= ttl - SECOND / 10, "too early: {after:?}");
    assert!(after < ttl + 3 * SECOND, "too late: {after:?}");
    assert!(failures.load(Ordering::SeqCst) >= 1, "no failed renewal was reported");
    redis.thaw();
    drop(guard);
    // And it goes on.
    let again = locks.key("a").ttl(ttl).wait(MINUTE).acquire().await.unwrap();
    assert_eq!(again.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_server_that_is_gone_and_back_is_used_again_and_what_it_forgot_is_lost() {
    let mut redis = Redis::start(&[]).await;
    let locks = locks(redis.url(), "t:").await;
    let guard = locks.key("a").ttl(6 * SECOND).acquire().await.unwrap();
    redis.kill();
    let refused = locks.key("b").acquire().await;
    assert!(matches!(refused, Err(LockError::Store(_))), "{refused:?}");
    let waiting = tokio::spawn(locks.key("b").wait(MINUTE).acquire());
    sleep(SECOND).await;
    // Empty: nothing is kept on disk.
    redis.restart().await;
    let next = waiting.await.unwrap().unwrap();
    // The renewal says that nobody has it.
    timeout(MINUTE, guard.lost()).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyExpired);
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn fences_rise_over_a_restart_that_forgets_everything() {
    let mut redis = Redis::start(&[]).await;
    let locks = locks(redis.url(), "t:").await;
    let before = locks.key("a").acquire().await.unwrap();
    let fence = before.fence();
    redis.restart().await;
    let after = locks.key("b").wait(MINUTE).acquire().await.unwrap();
    assert!(after.fence() > fence);
    drop(before);
    let same = locks.key("a").wait(MINUTE).acquire().await.unwrap();
    assert!(same.fence() > fence);
}

#[tokio::test]
async fn locks_share_the_connections_of_a_store_or_use_one_that_is_given() {
    let prefix = prefix();
    let store = RedisStore::builder(url()).prefix(prefix.as_str()).open().await.unwrap();
    let shared = Locks::new(store.locks());
    let given = RedisLocks::from_connection(raw().await).prefix(prefix.as_str()).open_locks().await.unwrap();
    let given = Locks::new(given);
    let guard = shared.key("a").ttl(MINUTE).acquire().await.unwrap();
    assert!(matches!(given.key("a").acquire().await, Err(LockError::Busy { .. })));
    // Nothing is heard on a given connection: it asks.
    let waiting = tokio::spawn(given.key("a").wait(MINUTE).acquire());
    sleep(SECOND / 5).await;
    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_cluster_wakes_who_waits_at_any_of_its_nodes() {
    let prefix = prefix();
    let (here, there) = (locks(cluster_url(), &prefix).await, locks(cluster_url(), &prefix).await);
    for n in 0..10 {
        let guard = here.key(format!("k{n}")).ttl(MINUTE).acquire().await.unwrap();
        let waiting = tokio::spawn(there.key(format!("k{n}")).wait(MINUTE).acquire());
        sleep(SECOND / 10).await;
        let fence = guard.fence();
        guard.release().await.unwrap();
        assert!(waiting.await.unwrap().unwrap().fence() > fence);
    }
}

#[tokio::test]
async fn a_counter_says_first_once_until_it_expires_or_is_reset() {
    let prefix = prefix();
    let backend = RedisLocks::builder(url()).prefix(prefix.as_str()).open_locks().await.unwrap();
    let counter = backend.once_counter(2 * SECOND);
    assert_eq!(counter.count("a").await.unwrap(), 0);
    assert!(counter.first("a").await.unwrap());
    assert!(!counter.first("a").await.unwrap());
    assert_eq!(counter.hit("a").await.unwrap(), 3);
    assert_eq!(counter.count("a").await.unwrap(), 3);
    assert!(counter.first("b").await.unwrap(), "keys do not touch each other");
    assert!(counter.reset("a").await.unwrap());
    assert!(!counter.reset("a").await.unwrap());
    assert!(counter.first("a").await.unwrap());
    // Counting does not lengthen its life: that counts from the first.
    sleep(SECOND).await;
    counter.hit("a").await.unwrap();
    sleep(SECOND + SECOND / 2).await;
    assert!(counter.first("a").await.unwrap(), "it did not expire");
    assert!(counter.first("").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_at_once_one_is_first_and_no_counter_is_immortal() {
    let redis = Redis::start(&[]).await;
    let backend = RedisLocks::builder(redis.url()).prefix("t:").open_locks().await.unwrap();
    let counter = backend.once_counter(MINUTE);
    let rivals: Vec<_> = (0..200)
        .map(|_| {
            let counter = counter.clone();
            tokio::spawn(async move { counter.first("a").await.unwrap() })
        })
        .collect();
    let mut firsts = 0;
    for rival in rivals {
        firsts += u32::from(rival.await.unwrap());
    }
    assert_eq!(firsts, 1);
    let key = redis.ask("keys t:count:*");
    let left: i64 = redis.ask(&format!("pttl {}", key.trim())).trim().parse().unwrap();
    assert!(left > 0 && left <= 60_000, "{left}");
    // One that somebody made without an end is given one.
    redis.ask(&format!("persist {}", key.trim()));
    counter.hit("a").await.unwrap();
    let left: i64 = redis.ask(&format!("pttl {}", key.trim())).trim().parse().unwrap();
    assert!(left > 0, "{left}");
}
