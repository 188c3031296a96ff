//! RedLock on five Redis of its own, of which some are down, slow, or restarted.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::servers::{Redis, until};
use onlyonce_core::Owner;
use onlyonce_core::lock::{Acquired, LockBackend, LockError, LockName, Locks, NoFence, Release};
use onlyonce_store_redis::{OpenError, RedLock};
use onlyonce_testkit::{FaultProxy, NetFault};
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

async fn five() -> Vec<Redis> {
    let mut nodes = Vec::new();
    for _ in 0..5 {
        nodes.push(Redis::start(&[]).await);
    }
    nodes
}

async fn locks(nodes: &[Redis]) -> Locks<NoFence> {
    let redlock = RedLock::builder(nodes.iter().map(Redis::url)).prefix("t:").node_timeout(SECOND);
    Locks::new(redlock.open().await.unwrap())
}

/// How many nodes have the lock.
fn held(nodes: &[Redis]) -> usize {
    nodes.iter().filter(|node| !node.ask("keys t:lock:*").trim().is_empty()).count()
}

#[tokio::test]
async fn with_two_of_five_nodes_down_locks_are_given_and_with_three_they_are_not() {
    let mut nodes = five().await;
    let locks = locks(&nodes).await;
    nodes[0].kill();
    nodes[3].kill();
    for _ in 0..3 {
        let guard = locks.key("a").ttl(MINUTE).acquire().await.unwrap();
        assert!(matches!(locks.key("a").acquire().await, Err(LockError::Busy { .. })));
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    nodes[1].kill();
    let refused = locks.key("a").ttl(MINUTE).acquire().await;
    assert!(matches!(refused, Err(LockError::Store(_))), "{refused:?}");
    // A failure releases all nodes.
    let alive: Vec<Redis> =
        nodes.into_iter().enumerate().filter(|(n, _)| [2, 4].contains(n)).map(|(_, it)| it).collect();
    until("nothing is left on the others", || held(&alive) == 0).await;
}

#[tokio::test]
async fn two_slow_nodes_delay_nothing() {
    let nodes = five().await;
    let locks = locks(&nodes).await;
    drop(locks.key("warm").acquire().await.unwrap());
    nodes[1].freeze();
    nodes[2].freeze();
    let began = Instant::now();
    for _ in 0..10 {
        let guard = locks.key("a").ttl(MINUTE).acquire().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    // Waiting for the time-outs of the slow ones would take 10 s or more.
    assert!(began.elapsed() < 9 * SECOND, "{:?}", began.elapsed());
    nodes[1].thaw();
    nodes[2].thaw();
    until("the slow ones are free too", || held(&nodes) == 0).await;
    let guard = locks.key("a").ttl(MINUTE).wait(MINUTE).acquire().await.unwrap();
    until("all have it", || held(&nodes) == 5).await;
    drop(guard);
}

#[tokio::test]
async fn a_claim_that_nobody_waits_for_does_not_come_after_the_release() {
    let nodes = five().await;
    let mut urls: Vec<_> = nodes.iter().map(Redis::url).collect();
    let mut slow = Vec::new();
    for n in [1, 2] {
        let proxy = FaultProxy::start(format!("127.0.0.1:{}", nodes[n].port())).await.unwrap();
        urls[n] = format!("redis://127.0.0.1:{}", proxy.port());
        slow.push(proxy);
    }
    let redlock = RedLock::builder(urls).prefix("t:").node_timeout(10 * SECOND).open().await.unwrap();
    let (name, owner) = (LockName::new("a").unwrap(), Owner::random());
    // The nodes know how to release, and not how to claim.
    let _ = redlock.release(&name, &Owner::random()).await;
    slow.iter().for_each(|proxy| proxy.always(NetFault::DelayReply(SECOND / 2)));
    assert!(matches!(redlock.acquire(&name, &owner, MINUTE).await, Ok(Acquired::Granted(_))));
    assert_eq!(redlock.release(&name, &owner).await.unwrap(), Release::Released);
    let evals = |node: &Redis| {
        let said = node.ask("info commandstats");
        let calls = said
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_eval:calls=")?.split(',').next()?.parse().ok());
        calls.unwrap_or(0_u32)
    };
    until("the claim has come to the slow ones", || [1, 2].iter().all(|n| evals(&nodes[*n]) >= 2)).await;
    until("they are free too", || held(&nodes) == 0).await;
}

#[tokio::test]
async fn a_node_that_restarted_empty_is_repaired_by_the_next_renewal() {
    let mut nodes = five().await;
    let locks = locks(&nodes).await;
    let guard = locks.key("a").ttl(6 * SECOND).acquire().await.unwrap();
    until("all have it", || held(&nodes) == 5).await;
    nodes[0].restart().await;
    nodes[4].restart().await;
    until("the two have it again", || held(&nodes) == 5).await;
    assert!(!guard.is_lost());
    // So that now two others may go.
    nodes[1].restart().await;
    nodes[2].restart().await;
    sleep(7 * SECOND).await;
    assert!(!guard.is_lost());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    until("it is free", || held(&nodes) == 0).await;
}

#[tokio::test]
async fn a_majority_that_forgot_is_a_lost_lock_and_nothing_is_left_of_it() {
    let mut nodes = five().await;
    let locks = locks(&nodes).await;
    let guard = locks.key("a").ttl(9 * SECOND).acquire().await.unwrap();
    until("all have it", || held(&nodes) == 5).await;
    for node in &mut nodes[..3] {
        node.restart().await;
    }
    timeout(MINUTE, guard.lost()).await.unwrap();
    until("it is free", || held(&nodes) == 0).await;
    drop(locks.key("a").wait(MINUTE).acquire().await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_at_a_time_over_clients_that_know_nothing_of_each_other() {
    let nodes = five().await;
    let (inside, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let locks = locks(&nodes).await;
        let (inside, done) = (Arc::clone(&inside), Arc::clone(&done));
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                let guard = locks.key("a").ttl(MINUTE).wait(MINUTE).acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                sleep(Duration::from_millis(2)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        timeout(2 * MINUTE, task).await.unwrap().unwrap();
    }
    assert_eq!(done.load(Ordering::SeqCst), 40);
}

#[tokio::test]
async fn what_is_certain_is_less_than_the_ttl() {
    let nodes = five().await;
    let locks = locks(&nodes).await;
    let guard = locks.key("a").ttl(MINUTE).acquire().await.unwrap();
    // One percent, and two milliseconds.
    assert!(guard.remaining() <= Duration::from_millis(59_398), "{guard:?}");
}

#[tokio::test]
async fn a_minority_may_be_down_when_it_is_opened_and_a_majority_may_not() {
    let mut nodes = five().await;
    let urls: Vec<_> = nodes.iter().map(Redis::url).collect();
    nodes[0].kill();
    nodes[1].kill();
    RedLock::builder(urls.clone()).node_timeout(5 * SECOND).open().await.unwrap();
    nodes[2].kill();
    let refused = RedLock::builder(urls.clone()).node_timeout(5 * SECOND).open().await.unwrap_err();
    assert!(matches!(refused, OpenError::Connect { .. }), "{refused:?}");
    let two = RedLock::open(&urls[..2]).await.unwrap_err().to_string();
    assert!(two.contains("at least three"), "{two}");
    let same = RedLock::open([&urls[0], &urls[0], &urls[1]]).await.unwrap_err().to_string();
    assert!(same.contains("different servers"), "{same}");
}
