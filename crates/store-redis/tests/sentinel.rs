//! A primary that Sentinels watch: found by its name, and found again after a failover.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::time::Duration;

use common::servers::{Redis, Watched, until};
use common::*;
use onlyonce_core::{ErrorKind, Settled, Store};
use onlyonce_store_redis::{OpenError, RedisStore};
use tokio::time::Instant;

/// Asks until the store is there again, and says what it heard meanwhile.
async fn back(store: &RedisStore) -> Vec<ErrorKind> {
    let (clock, mut heard) = (Instant::now(), Vec::new());
    loop {
        match store.get(&id()).await {
            Ok(_) => return heard,
            Err(error) => heard.push(error.kind()),
        }
        assert!(clock.elapsed() < Duration::from_secs(30), "the store does not come back: {heard:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn after_a_failover_the_new_primary_is_found_without_a_restart() {
    let mut watched = Watched::start(&[]).await;
    let store = open(watched.url(), &prefix()).await;
    let (id, other) = (id(), id());
    let attempt = begin(&store, &id).await.unwrap().unwrap();
    watched.servers[0].has_told(&watched.servers[1]).await;

    watched.servers[0].kill();
    let failed = store.get(&id).await.unwrap_err().kind();
    assert!(matches!(failed, ErrorKind::Unavailable | ErrorKind::Ambiguous), "{failed:?}");
    let meanwhile = begin(&store, &other).await.unwrap_err().kind();
    assert_eq!(meanwhile, ErrorKind::Unavailable, "nothing is acknowledged while there is no primary");

    watched.leads(1).await;
    back(&store).await;
    assert!(begin(&store, &id).await.unwrap().is_none(), "the record is there");
    assert_eq!(store.settle(&id, &attempt, &completed("a")).await.unwrap(), Settled::Applied);
}

#[tokio::test]
async fn an_old_primary_that_was_frozen_is_left_when_it_is_a_replica() {
    let watched = Watched::start(&[]).await;
    let patient = RedisStore::builder(watched.url()).prefix(prefix());
    let store = patient.response_timeout(Duration::from_millis(500)).open().await.unwrap();
    let id = id();
    begin(&store, &id).await.unwrap().unwrap();
    watched.servers[0].has_told(&watched.servers[1]).await;
    watched.servers[0].freeze();
    watched.leads(1).await;
    watched.servers[0].thaw();
    until("the old primary follows the new one", || {
        watched.servers[0].says("info replication", "role:slave")
    })
    .await;
    back(&store).await;
    assert!(begin(&store, &common::id()).await.unwrap().is_some(), "there is a primary that writes");
    assert!(begin(&store, &id).await.unwrap().is_none(), "a second attempt after the failover");
}

#[tokio::test]
async fn a_name_that_nobody_watches_is_said_to_be_that() {
    let error = RedisStore::open(sentinel_url().replace("/main", "/other")).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        matches!(error, OpenError::Connect { .. }) && cause.contains("no primary of this name"),
        "{cause}"
    );
    assert!(error.to_string().contains("/other"), "{error}");
}

#[tokio::test]
async fn one_sentinel_of_the_list_is_enough() {
    let url = sentinel_url();
    let (list, name) = url.trim_start_matches("redis-sentinel://").split_once('/').unwrap();
    let last = list.rsplit(',').next().unwrap();
    let store = open(format!("redis-sentinel://127.0.0.1:1,127.0.0.1:2,{last}/{name}"), &prefix()).await;
    assert!(begin(&store, &id()).await.unwrap().is_some());
}

#[tokio::test]
async fn sentinels_and_primary_may_have_passwords_of_their_own() {
    let primary = Redis::start(&["--requirepass", "hunter2"]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sentinel.conf");
    let port = onlyonce_testkit::free_port();
    let text = format!(
        "port {port}\nbind 127.0.0.1\nlogfile {}\nrequirepass w@tch\nsentinel monitor main 127.0.0.1 {} 1\n\
         sentinel auth-pass main hunter2\n",
        folder.path().join("log").display(),
        primary.port()
    );
    std::fs::write(&file, text).unwrap();
    let mut sentinel = std::process::Command::new("redis-server")
        .arg(file)
        .arg("--sentinel")
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until("the Sentinel answers", || servers::ask(port, "ping").contains("NOAUTH")).await;
    let url = |login: &str, words: &str| format!("redis-sentinel://{login}127.0.0.1:{port}/main{words}");
    let store = RedisStore::builder(url(":hunter2@", "?sentinel_password=w%40tch")).open().await;
    let locked = RedisStore::builder(url(":hunter2@", "")).open().await;
    let wrong = RedisStore::builder(url(":wrong@", "?sentinel_password=w%40tch")).open().await;
    sentinel.kill().unwrap();
    sentinel.wait().unwrap();
    let said = format!("{store:?}");
    assert!(begin(&store.unwrap(), &id()).await.unwrap().is_some());
    for error in [locked.unwrap_err(), wrong.unwrap_err()] {
        assert!(matches!(error, OpenError::Connect { .. }), "{error}");
        let all = format!("{said} {error} {error:?}");
        assert!(!all.contains("hunter2") && !all.contains("w@tch") && !all.contains("w%40tch"), "{all}");
    }
}
