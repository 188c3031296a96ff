//! A real Redis as a near cache: shared by processes, bounded in time, and never missed.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{begin, claim, completed, id, open, prefix, url};
use onlyonce_core::{Begin, MemoryStore, NearCache, Settled, Snapshot, State, Store, Tiered};
use onlyonce_store_redis::{RedisCache, RedisStore};
use onlyonce_testkit::{FaultProxy, FaultyStore, Op};

/// The truth, counted; and a tier before it with a Redis as its cache.
fn tier(truth: &Arc<FaultyStore>, redis: RedisStore) -> Tiered<FaultyStore> {
    Tiered::shared(Arc::clone(truth)).with_cache(RedisCache::new(redis))
}

fn truth() -> Arc<FaultyStore> {
    Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())))
}

async fn replay(store: &dyn Store, id: &onlyonce_core::RecordId) -> Option<Snapshot> {
    match store.begin(id, &claim()).await.unwrap() {
        Begin::Taken(snapshot) => Some(snapshot),
        Begin::Acquired { .. } => None,
    }
}

#[tokio::test]
async fn what_one_process_cached_another_replays_without_the_truth() {
    let (truth, prefix, id) = (truth(), prefix(), id());
    let one = tier(&truth, open(url(), &prefix).await);
    let other = tier(&truth, open(url(), &prefix).await);
    let attempt = begin(&one, &id).await.unwrap().unwrap();
    one.settle(&id, &attempt, &completed("done")).await.unwrap();
    let first = replay(&one, &id).await.unwrap();
    let asked = truth.calls(Op::Begin);
    for store in [&one, &other] {
        let again = replay(store, &id).await.unwrap();
        assert_eq!((&again.state, again.fence, &again.label), (&first.state, first.fence, &first.label));
        assert_eq!((again.fingerprint, again.attempts), (first.fingerprint, first.attempts));
        assert!(again.age >= first.age && again.expires_in <= first.expires_in);
    }
    assert_eq!(truth.calls(Op::Begin), asked);
    // All share this cache, so forget is heard by all.
    assert_eq!(other.forget(&id, first.fence).await.unwrap(), Settled::Applied);
    assert!(replay(&one, &id).await.is_none());
}

#[tokio::test]
async fn an_answer_is_near_for_60_seconds_at_most_and_never_for_longer_than_it_is_kept() {
    let prefix = prefix();
    let cache = RedisCache::new(open(url(), &prefix).await);
    assert_eq!(cache.longest(), Duration::from_secs(60));
    let (truth, id) = (truth(), id());
    let store = tier(&truth, open(url(), &prefix).await);
    let attempt = begin(&store, &id).await.unwrap().unwrap();
    let mut brief = completed("done");
    brief.retain = Duration::from_millis(400);
    store.settle(&id, &attempt, &brief).await.unwrap();
    assert!(replay(&store, &id).await.is_some());
    assert!(cache.get(&id).await.is_some());
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(cache.get(&id).await, None);
    assert!(replay(&store, &id).await.is_none(), "it runs anew");
}

#[tokio::test]
async fn the_times_of_a_cached_answer_go_on_by_the_clock_of_the_server() {
    let cache = RedisCache::new(open(url(), &prefix()).await);
    let (store, id) = (MemoryStore::new(), id());
    let attempt = begin(&store, &id).await.unwrap().unwrap();
    store.settle(&id, &attempt, &completed("done")).await.unwrap();
    let snapshot = store.get(&id).await.unwrap().unwrap();
    cache.put(&id, &snapshot, Duration::from_secs(60), 0).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let cached = cache.get(&id).await.unwrap();
    let passed = cached.age - snapshot.age;
    assert!(passed >= Duration::from_millis(290), "{passed:?}");
    assert_eq!(cached.expires_in + passed, snapshot.expires_in);
    assert!(matches!(cached.state, State::Completed(answer) if answer.0 == "done"));
}

#[tokio::test]
async fn a_cache_that_is_down_or_silent_is_passed_by() {
    let address = url().split_once("://").unwrap().1.trim_end_matches('/').to_owned();
    let proxy = FaultProxy::start(address).await.unwrap();
    let (truth, id) = (truth(), id());
    let store = tier(&truth, open(format!("redis://{}", proxy.address()), &prefix()).await);
    let attempt = begin(&store, &id).await.unwrap().unwrap();
    store.settle(&id, &attempt, &completed("done")).await.unwrap();
    proxy.black_hole();
    for _ in 0..3 {
        assert!(replay(&store, &id).await.is_some());
    }
    proxy.heal().await;
    proxy.refuse().await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert!(replay(&store, &id).await.is_some());
    let Some(snapshot) = store.get(&id).await.unwrap() else { panic!("gone") };
    assert_eq!(store.forget(&id, snapshot.fence).await.unwrap(), Settled::Applied);
    assert!(replay(&store, &id).await.is_none());
}

#[tokio::test]
async fn an_answer_that_was_forgotten_while_the_cache_was_away_does_not_come_back() {
    let address = url().split_once("://").unwrap().1.trim_end_matches('/').to_owned();
    let proxy = FaultProxy::start(address).await.unwrap();
    let (truth, id) = (truth(), id());
    let store = tier(&truth, open(format!("redis://{}", proxy.address()), &prefix()).await);
    let attempt = begin(&store, &id).await.unwrap().unwrap();
    store.settle(&id, &attempt, &completed("old")).await.unwrap();
    let old = replay(&store, &id).await.unwrap();
    assert!(replay(&store, &id).await.is_some(), "from the cache");
    proxy.black_hole();
    assert_eq!(store.forget(&id, old.fence).await.unwrap(), Settled::Applied);
    let attempt = begin(&store, &id).await.unwrap().expect("it runs anew");
    store.settle(&id, &attempt, &completed("new")).await.unwrap();
    proxy.heal().await;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    for _ in 0..3 {
        let answer = replay(&store, &id).await.unwrap().state;
        assert!(matches!(&answer, State::Completed(answer) if answer.0 == "new"), "{answer:?}");
    }
}

#[tokio::test]
async fn what_was_evicted_after_the_truth_was_asked_is_not_put() {
    let cache = RedisCache::new(open(url(), &prefix()).await);
    let (store, id) = (MemoryStore::new(), id());
    let attempt = begin(&store, &id).await.unwrap().unwrap();
    store.settle(&id, &attempt, &completed("done")).await.unwrap();
    let snapshot = store.get(&id).await.unwrap().unwrap();
    let before = cache.mark(&id);
    cache.evict(&id).await;
    cache.put(&id, &snapshot, Duration::from_secs(60), before).await;
    assert_eq!(cache.get(&id).await, None);
    cache.put(&id, &snapshot, Duration::from_secs(60), cache.mark(&id)).await;
    assert!(cache.get(&id).await.is_some());
}
