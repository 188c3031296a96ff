//! Scenarios 16, 17, 18 and 21: what a Redis that loses acknowledged writes does to a call, and what the fence does about it.
//! docs/guarantees.md says the same in words.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::calls::{call, engine};
use common::repeating::Repeating;
use common::servers::{OwnCluster, Redis, Watched, until};
use common::*;
use onlyonce_core::{ErrorKind, Fence, Settings, Settled, State, Store};
use onlyonce_store_redis::RedisStore;
use onlyonce_testkit::Ledger;
use parking_lot::Mutex;
use tokio::time::Instant;

/// From now on the replica gets nothing, and neither of the two notices that it should.
async fn part(primary: &Redis, replica: &Redis) {
    primary.ask("acl setuser default -psync -sync");
    primary.ask("client kill type replica");
    until("the replica is cut off", || replica.says("info replication", "master_link_status:down")).await;
}

/// Waits until the store answers again.
async fn back(store: &RedisStore) {
    let clock = Instant::now();
    while let Err(error) = store.get(&id()).await {
        assert!(clock.elapsed() < Duration::from_secs(30), "the store does not come back: {error:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn answer(store: &RedisStore, id: &onlyonce_core::RecordId) -> String {
    match store.get(id).await.unwrap().unwrap().state {
        State::Completed(answer) => String::from_utf8(answer.0.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Something outside that takes a write only with a fence that is not below the highest it has seen.
#[derive(Default)]
struct Fenced(Mutex<(u64, Vec<&'static str>)>);

impl Fenced {
    fn write(&self, fence: Fence, what: &'static str) -> bool {
        let mut state = self.0.lock();
        if fence.0 < state.0 {
            return false;
        }
        state.0 = fence.0;
        state.1.push(what);
        true
    }
}

#[tokio::test]
async fn scenario_16_a_failover_that_loses_the_record_lets_the_call_run_again_and_one_that_keeps_it_does_not()
{
    let mut watched = Watched::start(&[]).await;
    let store = Arc::new(open(watched.url(), &prefix()).await);
    let (once, effects) = (engine(store.clone(), Settings::default()), Ledger::in_memory());
    let kept = call(&once, "kept", &effects).await.unwrap();
    watched.servers[0].has_told(&watched.servers[1]).await;
    part(&watched.servers[0], &watched.servers[1]).await;
    let first = call(&once, "lost", &effects).await.unwrap();
    assert_eq!(call(&once, "lost", &effects).await.unwrap(), first, "until then it is replayed");

    watched.servers[0].kill();
    watched.leads(1).await;
    back(&store).await;
    assert_eq!(call(&once, "kept", &effects).await.unwrap(), kept);
    assert_eq!(effects.count("kept").unwrap(), 1, "what the replica had is as if nothing had happened");
    // The documented result: an acknowledged record that the failover lost is a call that runs again.
    let second = call(&once, "lost", &effects).await.unwrap();
    assert_ne!(second, first);
    assert_eq!(effects.count("lost").unwrap(), 2);
    assert_eq!(call(&once, "lost", &effects).await.unwrap(), second, "and from then on it is replayed again");
}

#[tokio::test]
async fn scenario_17_nothing_of_an_old_primary_comes_back_with_it() {
    let watched = Watched::start(&[]).await;
    let patient = RedisStore::builder(watched.url()).prefix(prefix());
    let store = patient.response_timeout(Duration::from_millis(500)).open().await.unwrap();
    let id = id();
    part(&watched.servers[0], &watched.servers[1]).await;
    let zombie = begin(&store, &id).await.unwrap().unwrap();
    watched.servers[0].freeze();
    watched.leads(1).await;
    // The connection to the frozen primary is given up for the new one, which knows nothing of the record.
    back(&store).await;
    let heir = begin(&store, &id).await.unwrap().unwrap();
    assert_eq!(store.settle(&id, &heir, &completed("heir")).await.unwrap(), Settled::Applied);

    watched.servers[0].thaw();
    until("the old primary follows", || watched.servers[0].says("info replication", "role:slave")).await;
    back(&store).await;
    assert_eq!(store.settle(&id, &zombie, &completed("zombie")).await.unwrap(), Settled::Lost);
    assert_eq!(answer(&store, &id).await, "heir");
    assert!(zombie.fence < heir.fence);
}

#[tokio::test]
async fn scenario_18_a_redis_that_restarts_empty_forgets_and_who_still_runs_is_told() {
    let mut redis = Redis::start(&[]).await;
    let store = Arc::new(open(redis.url(), &prefix()).await);
    let settings = Settings { lease: Duration::from_millis(900), ..Settings::default() };
    let (once, effects) = (engine(store.clone(), settings), Ledger::in_memory());
    call(&once, "done", &effects).await.unwrap();
    let runs = id();
    let attempt = begin(&*store, &runs).await.unwrap().unwrap();
    redis.restart().await;
    back(&store).await;
    assert_eq!(store.renew(&runs, &attempt, Duration::from_secs(1)).await.unwrap(), Settled::Lost);
    assert_eq!(store.settle(&runs, &attempt, &completed("a")).await.unwrap(), Settled::Lost);
    // The documented result: without persistence a restart is a new life.
    call(&once, "done", &effects).await.unwrap();
    assert_eq!(effects.count("done").unwrap(), 2);
}

#[tokio::test]
async fn scenario_18_a_redis_that_wrote_everything_down_forgets_nothing() {
    let mut redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let strict = RedisStore::builder(redis.url()).prefix(prefix()).strict();
    let store = Arc::new(strict.open().await.unwrap());
    let (once, effects) = (engine(store.clone(), Settings::default()), Ledger::in_memory());
    let first = call(&once, "done", &effects).await.unwrap();
    let runs = id();
    let attempt = begin(&*store, &runs).await.unwrap().unwrap();
    redis.restart().await;
    back(&store).await;
    assert_eq!(call(&once, "done", &effects).await.unwrap(), first);
    assert_eq!(effects.count("done").unwrap(), 1);
    assert_eq!(store.settle(&runs, &attempt, &completed("a")).await.unwrap(), Settled::Applied);
}

/// Two attempts on either side of a failover that lost the first: only the second reaches a resource that looks at fences.
#[tokio::test]
async fn scenario_21_after_a_failover_the_fence_is_higher_and_a_fenced_resource_stays_single() {
    let mut watched = Watched::start(&[]).await;
    let (store, id) = (open(watched.url(), &prefix()).await, id());
    part(&watched.servers[0], &watched.servers[1]).await;
    let before = begin(&store, &id).await.unwrap().unwrap();
    watched.servers[0].kill();
    watched.leads(1).await;
    back(&store).await;
    let after = begin(&store, &id).await.unwrap().unwrap();
    assert!(after.fence > before.fence, "the record is lost, and time has gone on");
    let resource = Fenced::default();
    assert!(resource.write(after.fence.unwrap(), "after"));
    assert!(!resource.write(before.fence.unwrap(), "before"), "the zombie's write is refused");
    assert_eq!(store.settle(&id, &before, &completed("before")).await.unwrap(), Settled::Lost);
    assert_eq!(resource.0.lock().1, ["after"]);
}

/// A server whose clock is an hour behind takes over: with the record the fence still rises; without it, it falls, and then
/// the resource refuses the new attempt.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn scenario_21_a_fence_falls_only_if_the_record_is_lost_and_the_clock_is_behind() {
    let primary = Redis::start(&[]).await;
    let behind = Redis::start_behind(
        Duration::from_secs(3600),
        &["--replicaof", &format!("127.0.0.1 {}", primary.port())],
    )
    .await;
    until("the replica follows", || behind.says("info replication", "master_link_status:up")).await;
    let prefix = prefix();
    let (old, kept, lost) = (open(primary.url(), &prefix).await, id(), id());
    let before_kept = begin(&old, &kept).await.unwrap().unwrap();
    let free = onlyonce_core::Settlement {
        verdict: onlyonce_core::Verdict::Released,
        retain: Duration::from_secs(7200),
    };
    assert_eq!(old.settle(&kept, &before_kept, &free).await.unwrap(), Settled::Applied);
    primary.has_told(&behind).await;
    part(&primary, &behind).await;
    let before_lost = begin(&old, &lost).await.unwrap().unwrap();

    behind.ask("replicaof no one");
    let new = open(behind.url(), &prefix).await;
    let after_kept = begin(&new, &kept).await.unwrap().unwrap();
    assert_eq!(
        after_kept.fence.unwrap().0,
        before_kept.fence.unwrap().0 + 1,
        "the record remembers its fence"
    );
    let after_lost = begin(&new, &lost).await.unwrap().unwrap();
    assert!(after_lost.fence < before_lost.fence, "the documented fall");
    let resource = Fenced::default();
    assert!(resource.write(before_lost.fence.unwrap(), "before"));
    assert!(!resource.write(after_lost.fence.unwrap(), "after"));
    assert_eq!(resource.0.lock().1, ["before"], "a fall is refused by the resource: nothing happens twice");
}

/// What the driver waits for may never come, so it is not waited for on that connection.
#[tokio::test]
async fn a_cluster_that_fell_silent_is_connected_to_anew() {
    let cluster = OwnCluster::start().await;
    let patient = RedisStore::builder(cluster.url()).prefix(prefix());
    let store = patient.response_timeout(Duration::from_millis(500)).open().await.unwrap();
    let connections = || {
        let info = cluster.nodes[0].ask("info stats");
        let line = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let id = id();
    begin(&store, &id).await.unwrap().unwrap();
    cluster.nodes.iter().for_each(Redis::freeze);
    let silent = store.get(&id).await.unwrap_err();
    cluster.nodes.iter().for_each(Redis::thaw);
    assert!(matches!(silent.kind(), ErrorKind::Ambiguous | ErrorKind::Unavailable), "{silent:?}");
    let before = connections();
    back(&store).await;
    assert!(connections() > before + 1, "this very question is one");
    assert!(begin(&Repeating(store), &id).await.unwrap().is_none(), "the record is there");
}

#[tokio::test]
async fn a_primary_of_a_cluster_that_dies_is_followed_by_its_replica_with_what_it_had() {
    let mut cluster = OwnCluster::start().await;
    let prefix = prefix();
    let patient = RedisStore::builder(cluster.url()).prefix(&prefix);
    let store = Repeating(patient.response_timeout(Duration::from_millis(800)).open().await.unwrap());
    let id = id();
    let attempt = begin(&store, &id).await.unwrap().unwrap();
    let holder = cluster.holder(&key(&prefix, id));
    let [replica] = cluster.replicas_of(holder)[..] else { panic!("not one replica") };
    cluster.nodes[holder].has_told(&cluster.nodes[replica]).await;
    cluster.nodes[holder].kill();
    let taken = begin(&store, &id).await.unwrap();
    assert!(taken.is_none(), "a second attempt after the failover");
    assert_eq!(store.settle(&id, &attempt, &completed("a")).await.unwrap(), Settled::Applied);
    assert_ne!(cluster.holder(&key(&prefix, id)), holder);
}
