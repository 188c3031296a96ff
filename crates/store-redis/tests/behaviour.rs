//! What only a server can do to a store: forget its scripts, hold something else, go away and come back.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use onlyonce_core::{ErrorKind, Filter, Inspect, Settled, StateKind, Store};
use onlyonce_testkit::{FaultProxy, NetFault};
use tokio::task::JoinSet;

#[tokio::test]
async fn scripts_that_the_server_forgot_are_sent_again() {
    for url in [url(), cluster_url()] {
        let store = open(url.clone(), &prefix()).await;
        let id = id();
        let attempt = begin(&store, &id).await.unwrap().unwrap();
        let nodes = url.rsplit("//").next().unwrap().split(',');
        for node in nodes {
            let client = redis::Client::open(format!("redis://{node}")).unwrap();
            let mut node = client.get_multiplexed_async_connection().await.unwrap();
            redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut node).await.unwrap();
        }
        assert_eq!(store.renew(&id, &attempt, Duration::from_secs(60)).await.unwrap(), Settled::Applied);
        assert_eq!(store.settle(&id, &attempt, &completed("a")).await.unwrap(), Settled::Applied);
        assert_eq!(store.get(&id).await.unwrap().unwrap().state.kind(), StateKind::Completed);
        assert!(begin(&store, &id).await.unwrap().is_none());
        assert_eq!(store.forget(&id, attempt.fence.unwrap()).await.unwrap(), Settled::Applied);
    }
}

#[tokio::test]
async fn what_is_no_record_fails_its_key_as_corrupt_and_no_other() {
    let prefix = prefix();
    let store = open(url(), &prefix).await;
    let (list, text, short, cut, good) = (id(), id(), id(), id(), id());
    let key = |id| key(&prefix, id);
    let mut raw = raw().await;
    redis::cmd("RPUSH").arg(key(list)).arg("x").exec_async(&mut raw).await.unwrap();
    redis::cmd("SET").arg(key(text)).arg("y".repeat(500)).exec_async(&mut raw).await.unwrap();
    redis::cmd("SET").arg(key(short)).arg("O\x01R").exec_async(&mut raw).await.unwrap();
    redis::cmd("SET").arg(key(cut)).arg("O\x01C").exec_async(&mut raw).await.unwrap();
    for bad in [list, text, short, cut] {
        let attempt = onlyonce_core::AttemptId { owner: claim().owner, fence: None };
        let kinds = [
            begin(&store, &bad).await.unwrap_err().kind(),
            store.get(&bad).await.unwrap_err().kind(),
            store.settle(&bad, &attempt, &completed("a")).await.unwrap_err().kind(),
            store.renew(&bad, &attempt, Duration::from_secs(1)).await.unwrap_err().kind(),
            store.forget(&bad, onlyonce_core::Fence(1)).await.unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::Corrupt; 5]);
    }
    begin(&store, &good).await.unwrap().unwrap();
    let page = store.list(&Filter::default(), None, 10).await.unwrap();
    assert_eq!(page.records.iter().map(|listed| listed.id).collect::<Vec<_>>(), [good]);
}

#[tokio::test]
async fn a_route_of_any_length_is_listed() {
    let store = open(url(), &prefix()).await;
    let mut long = claim();
    long.label.route = "r".repeat(5000).into();
    store.begin(&id(), &long).await.unwrap();
    let page = store.list(&Filter::default(), None, 10).await.unwrap();
    assert_eq!(page.records[0].snapshot.label, long.label);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_200_concurrent_begins_one_is_acquired() {
    for url in [url(), cluster_url()] {
        let prefix = prefix();
        let stores = [Arc::new(open(url.clone(), &prefix).await), Arc::new(open(url, &prefix).await)];
        let id = id();
        let mut begins = JoinSet::new();
        for n in 0..200 {
            let store = stores[n % 2].clone();
            begins.spawn(async move { begin(&*store, &id).await.unwrap() });
        }
        assert_eq!(begins.join_all().await.into_iter().flatten().count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_wakes_who_waits_in_another_without_their_asking() {
    for url in [url(), cluster_url()] {
        let prefix = prefix();
        let (here, there) = (open(url.clone(), &prefix).await, Arc::new(open(url, &prefix).await));
        // Until it listens, it asks.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut waits = Vec::new();
        for _ in 0..5 {
            let id = id();
            let attempt = begin(&here, &id).await.unwrap().unwrap();
            let seen = there.get(&id).await.unwrap().unwrap().revision();
            let waiter = there.clone();
            let waiter =
                tokio::spawn(async move { waiter.changed(&id, seen, Duration::from_secs(60)).await });
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(!waiter.is_finished());
            let clock = tokio::time::Instant::now();
            here.settle(&id, &attempt, &completed("a")).await.unwrap();
            waiter.await.unwrap();
            waits.push(clock.elapsed());
        }
        // Who only asks would ask every 1.5 to 2 s. Machines stall, but not five times.
        assert!(*waits.iter().min().unwrap() < Duration::from_millis(500), "{waits:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_away_did_not_do_it_and_one_that_does_not_reply_may_have() {
    let proxy = FaultProxy::start(url().trim_start_matches("redis://").to_owned()).await.unwrap();
    let prefix = prefix();
    let slow = onlyonce_store_redis::RedisStore::builder(format!("redis://{}", proxy.address()));
    let store = slow.prefix(&prefix).response_timeout(Duration::from_millis(200)).open().await.unwrap();
    let (first, second) = (id(), id());
    let claim = claim();

    // The request goes through, the reply does not.
    proxy.always(NetFault::DropReply);
    assert_eq!(store.begin(&first, &claim).await.unwrap_err().kind(), ErrorKind::Ambiguous);
    proxy.heal().await;
    let again = store.begin(&first, &claim).await.unwrap();
    assert!(matches!(again, onlyonce_core::Begin::Acquired { attempt: 1, .. }), "its own begin: {again:?}");

    proxy.refuse().await;
    // The broken connection is noticed by one call at most, of which nobody can know.
    let _ = store.get(&second).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(begin(&store, &second).await.unwrap_err().kind(), ErrorKind::Unavailable);
    proxy.heal().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(begin(&store, &second).await.unwrap().is_some(), "it recovers by itself");
}

#[tokio::test]
async fn what_needs_a_person_is_in_the_index_and_what_has_expired_is_taken_out() {
    for url in [url(), cluster_url()] {
        let prefix = prefix();
        let store = open(url.clone(), &prefix).await;
        let unknown = || {
            let verdict = onlyonce_core::Verdict::Unknown(onlyonce_core::Answer("?".into()));
            onlyonce_core::Settlement { verdict, retain: Duration::from_secs(600) }
        };
        let (runs, waits, done) = (id(), id(), id());
        begin(&store, &runs).await.unwrap().unwrap();
        for (id, how) in [(waits, unknown()), (done, completed("a"))] {
            let attempt = begin(&store, &id).await.unwrap().unwrap();
            store.settle(&id, &attempt, &how).await.unwrap();
        }
        let lapsed: Vec<_> = store.lapsed(10).await.unwrap().into_iter().map(|listed| listed.id).collect();
        assert_eq!(lapsed, [waits]);
        // An id whose record has expired: `lapsed` takes it out, and so do sweeps, which get round in time.
        for by_sweep in [false, true] {
            let stale = id();
            let mut add = redis::cmd("ZADD");
            add.arg(index(&prefix, stale)).arg(1).arg(stale.to_string());
            let mut size = redis::cmd("ZCARD");
            size.arg(index(&prefix, stale));
            let ask = async |command: &redis::Cmd| -> i64 {
                if url.starts_with("redis-cluster") {
                    let nodes = url.trim_start_matches("redis-cluster://").split(',');
                    let client =
                        redis::cluster::ClusterClient::new(nodes.map(|node| format!("redis://{node}")))
                            .unwrap();
                    command.query_async(&mut client.get_async_connection().await.unwrap()).await.unwrap()
                } else {
                    command.query_async(&mut raw().await).await.unwrap()
                }
            };
            assert_eq!(ask(&add).await, 1);
            let before = ask(&size).await;
            if by_sweep {
                for _ in 0..16 {
                    store.sweep(1000).await.unwrap();
                }
            } else {
                assert_eq!(store.lapsed(10).await.unwrap().len(), 1);
            }
            assert_eq!(ask(&size).await, before - 1, "taken out by a sweep: {by_sweep}");
        }
    }
}
