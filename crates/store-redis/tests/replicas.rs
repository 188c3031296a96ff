//! Waiting for replicas: what is acknowledged is there, and what is not there is not acknowledged.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::calls::{call, engine};
use common::servers::{OwnCluster, PROGRAMS, Redis, Watched};
use common::*;
use onlyonce_core::{Answer, ErrorKind, Refusal, Settings, Settled, Settlement, StateKind, Store, Verdict};
use onlyonce_store_redis::RedisStore;
use onlyonce_testkit::Ledger;
use tokio::task::JoinSet;

async fn replicated(url: String, prefix: &str) -> RedisStore {
    waiting(url, prefix, Duration::from_secs(1)).await
}

/// One that is soon told what is missing.
async fn quickly(url: String, prefix: &str) -> RedisStore {
    waiting(url, prefix, Duration::from_millis(50)).await
}

async fn waiting(url: String, prefix: &str, patience: Duration) -> RedisStore {
    RedisStore::builder(url).prefix(prefix).replicas(1, patience).open().await.unwrap()
}

/// One test for each program.
macro_rules! on_each {
    ($($test:ident,)+) => {
        mod redis_7_0 { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $test() { super::$test(super::PROGRAMS[0]).await; })+ }
        mod valkey { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $test() { super::$test(super::PROGRAMS[1]).await; })+ }
    };
}

on_each! {
    what_is_acknowledged_is_at_the_replica,
    without_the_replica_nothing_runs_and_with_it_everything_goes_on,
    a_settlement_is_acknowledged_by_what_replicas_have_however_often_it_is_repeated,
    a_wait_that_is_refused_says_nothing_about_the_write_before_it,
    a_server_that_has_no_replica_acknowledges_nothing,
    a_connection_of_the_user_waits_too,
}

async fn what_is_acknowledged_is_at_the_replica(program: &'static str) {
    let primary = Redis::start_program(program, &[]).await;
    let replica = primary.replica(&[]).await;
    let prefix = prefix();
    let store = Arc::new(replicated(primary.url(), &prefix).await);
    let mut begins = JoinSet::new();
    for _ in 0..50 {
        let store = store.clone();
        begins.spawn(async move {
            let id = id();
            let attempt = begin(&*store, &id).await.unwrap().unwrap();
            assert_eq!(store.settle(&id, &attempt, &completed("a")).await.unwrap(), Settled::Applied);
            id
        });
    }
    let ids = begins.join_all().await;
    // The primary is gone; what was acknowledged is not.
    drop(primary);
    replica.ask("replicaof no one");
    let heir = open(replica.url(), &prefix).await;
    for id in ids {
        assert_eq!(heir.get(&id).await.unwrap().unwrap().state.kind(), StateKind::Completed);
    }
}

async fn without_the_replica_nothing_runs_and_with_it_everything_goes_on(program: &'static str) {
    let primary = Redis::start_program(program, &[]).await;
    let replica = primary.replica(&[]).await;
    let prefix = prefix();
    let store = Arc::new(replicated(primary.url(), &prefix).await);
    let (once, effects) = (engine(store.clone(), Settings::default()), Ledger::in_memory());
    call(&once, "before", &effects).await.unwrap();
    let (running, settled) = (id(), id());
    let attempt = begin(&*store, &settled).await.unwrap().unwrap();

    replica.freeze();
    let error = begin(&*store, &running).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Ambiguous);
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("0 of 1 replicas"), "{cause}");
    assert_eq!(
        store.settle(&settled, &attempt, &completed("a")).await.unwrap_err().kind(),
        ErrorKind::Ambiguous
    );
    let refused = call(&once, "meanwhile", &effects).await.unwrap_err().0;
    assert!(matches!(&refused, Refusal::Store(error) if error.kind() == ErrorKind::Ambiguous), "{refused:?}");
    assert_eq!(effects.count("meanwhile").unwrap(), 0, "what is not replicated does not run");

    replica.thaw();
    // The same settlement again hears whether the replica has it by now.
    assert_eq!(store.settle(&settled, &attempt, &completed("a")).await.unwrap(), Settled::Applied);
    let patient = tokio::time::Instant::now();
    while call(&once, "meanwhile", &effects).await.is_err() {
        assert!(patient.elapsed() < Duration::from_secs(30), "what was given up is not given back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(effects.count("meanwhile").unwrap(), 1);
}

/// On a new connection each time, on which nothing else was written, and whatever the verdict.
async fn a_settlement_is_acknowledged_by_what_replicas_have_however_often_it_is_repeated(
    program: &'static str,
) {
    let primary = Redis::start_program(program, &[]).await;
    let replica = primary.replica(&[]).await;
    let prefix = prefix();
    let store = replicated(primary.url(), &prefix).await;
    let verdicts = [completed("a").verdict, completed("").verdict, Verdict::Released, unknown("seen")];
    let mut settled = Vec::new();
    for verdict in verdicts {
        let id = id();
        let attempt = begin(&store, &id).await.unwrap().unwrap();
        settled.push((id, attempt, Settlement { verdict, retain: Duration::from_secs(600) }));
    }
    replica.freeze();
    for (id, attempt, how) in &settled {
        for _ in 0..3 {
            let elsewhere = quickly(primary.url(), &prefix).await;
            let repeated = elsewhere.settle(id, attempt, how).await;
            assert_eq!(repeated.unwrap_err().kind(), ErrorKind::Ambiguous, "{how:?}");
        }
    }
    let kept = primary.ask(&format!("pexpiretime {}", key(&prefix, settled[0].0)));
    replica.thaw();
    for (id, attempt, how) in &settled {
        let elsewhere = replicated(primary.url(), &prefix).await;
        assert_eq!(elsewhere.settle(id, attempt, how).await.unwrap(), Settled::Applied, "{how:?}");
    }
    let still = primary.ask(&format!("pexpiretime {}", key(&prefix, settled[0].0)));
    assert_eq!(kept, still, "a repeated settlement is not kept longer");
}

fn unknown(evidence: &'static str) -> Verdict {
    Verdict::Unknown(Answer(evidence.into()))
}

/// A user that may write and not wait: the write is there, so it can't be said that nothing happened.
async fn a_wait_that_is_refused_says_nothing_about_the_write_before_it(program: &'static str) {
    let primary = Redis::start_program(program, &[]).await;
    primary.ask("acl setuser ann on >hunter2 ~* &* +@all -wait");
    let url = primary.url().replace("redis://", "redis://ann:hunter2@");
    let client = redis::Client::open(url.clone()).unwrap();
    let given = client.get_multiplexed_async_connection().await.unwrap();
    let given = RedisStore::from_connection(given).replicas(1, Duration::from_secs(1)).open().await.unwrap();
    for store in [given, replicated(url, "own:").await] {
        let id = id();
        let claim = claim();
        let refused = store.begin(&id, &claim).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Ambiguous, "{refused:?}");
        assert!(store.get(&id).await.unwrap().is_some(), "it was begun");
        // What others have needs no replica.
        assert!(begin(&store, &id).await.unwrap().is_none());
    }
}

async fn a_server_that_has_no_replica_acknowledges_nothing(program: &'static str) {
    let alone = Redis::start_program(program, &[]).await;
    let store = replicated(alone.url(), &prefix()).await;
    assert_eq!(begin(&store, &id()).await.unwrap_err().kind(), ErrorKind::Ambiguous);
    assert!(store.get(&id()).await.unwrap().is_none(), "reading needs no replica");
}

async fn a_connection_of_the_user_waits_too(program: &'static str) {
    let primary = Redis::start_program(program, &[]).await;
    let replica = primary.replica(&[]).await;
    let client = redis::Client::open(primary.url()).unwrap();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(10)));
    let connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    let builder = RedisStore::from_connection(connection).replicas(1, Duration::from_secs(1));
    let store = builder.open().await.unwrap();
    assert!(begin(&store, &id()).await.unwrap().is_some());
    replica.freeze();
    assert_eq!(begin(&store, &id()).await.unwrap_err().kind(), ErrorKind::Ambiguous);
    replica.thaw();
}

#[tokio::test]
async fn with_replicas_a_failover_loses_nothing_that_was_acknowledged() {
    let mut watched = Watched::start(&[]).await;
    let store = Arc::new(replicated(watched.url(), &prefix()).await);
    let (once, effects) = (engine(store.clone(), Settings::default()), Ledger::in_memory());
    let mut answers = Vec::new();
    for n in 0..40 {
        answers.push(call(&once, &n.to_string(), &effects).await.unwrap());
    }
    watched.servers[0].kill();
    watched.leads(1).await;
    // The new primary has no replica of its own: replays need none.
    for (n, answer) in answers.iter().enumerate() {
        let again = loop {
            match call(&once, &n.to_string(), &effects).await {
                Ok(again) => break again,
                Err(refused) => assert!(refused.0.is_retryable(), "{refused:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert_eq!(again, *answer);
        assert_eq!(effects.count(&n.to_string()).unwrap(), 1);
    }
}

#[tokio::test]
async fn on_a_cluster_the_replica_of_the_slot_is_waited_for() {
    let cluster = OwnCluster::start().await;
    let prefix = prefix();
    let store = replicated(cluster.url(), &prefix).await;
    let id = id();
    let attempt = begin(&store, &id).await.unwrap().unwrap();
    let holder = cluster.holder(&key(&prefix, id));
    let [replica] = cluster.replicas_of(holder)[..] else { panic!("not one replica") };
    cluster.nodes[replica].freeze();
    assert_eq!(store.settle(&id, &attempt, &completed("a")).await.unwrap_err().kind(), ErrorKind::Ambiguous);
    cluster.nodes[replica].thaw();
    assert_eq!(store.settle(&id, &attempt, &completed("a")).await.unwrap(), Settled::Applied);
}
