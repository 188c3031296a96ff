//! Servers that are not as they should be: a clear error each, nothing runs, and all goes on by itself once they are.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::error::Error;
use std::time::Duration;

use common::servers::{Redis, until};
use common::*;
use onlyonce_core::{ErrorKind, Settled, StateKind, Store};
use onlyonce_store_redis::{OpenError, RedisStore};
use tokio::time::Instant;

/// What an error says, with its causes.
fn told(error: &dyn Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said += &format!(": {error}");
        cause = error.source();
    }
    said
}

async fn refused(url: String) -> (OpenError, String) {
    let error = RedisStore::open(url).await.unwrap_err();
    let said = told(&error);
    (error, said)
}

/// Begins until it is acquired.
async fn until_it_begins(store: &RedisStore) {
    let clock = Instant::now();
    while let Err(error) = begin(store, &id()).await {
        assert!(clock.elapsed() < Duration::from_secs(30), "it does not recover: {}", told(&error));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_wrong_password_and_a_missing_one_are_told_apart() {
    let redis = Redis::start(&["--requirepass", "hunter2"]).await;
    let (error, said) = refused(redis.url().replace("redis://", "redis://:wrong@")).await;
    assert!(
        matches!(error, OpenError::Connect { .. }) && said.contains("check address, user and password"),
        "{said}"
    );
    assert!(said.contains("Password authentication failed"), "{said}");
    let (_, said) = refused(redis.url()).await;
    assert!(said.to_lowercase().contains("authentication required"), "{said}");
    assert!(RedisStore::open(redis.url().replace("redis://", "redis://:hunter2@")).await.is_ok());
}

#[tokio::test]
async fn a_user_who_may_not_write_runs_nothing_until_he_may() {
    let redis = Redis::start(&[]).await;
    redis.ask("acl setuser ann on >pass ~* &* +@all -set -zadd");
    let store = open(redis.url().replace("redis://", "redis://ann:pass@"), &prefix()).await;
    let error = begin(&store, &id()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", told(&error));
    assert!(told(&error).contains("can't run this command"), "{}", told(&error));
    redis.ask("acl setuser ann +@all");
    until_it_begins(&store).await;
}

#[tokio::test]
async fn a_database_that_there_is_not_is_said_to_be_that() {
    let (error, said) = refused(format!("{}/99", url())).await;
    assert!(matches!(error, OpenError::Connect { .. }) && said.contains("out of range"), "{said}");
}

#[tokio::test]
async fn a_replica_is_refused_and_a_primary_that_becomes_one_runs_nothing_until_it_is_primary_again() {
    let primary = Redis::start(&[]).await;
    let other = primary.replica(&[]).await;
    let (error, said) = refused(other.url()).await;
    assert!(matches!(error, OpenError::WrongServer { .. }) && said.contains("name its primary"), "{said}");

    let store = open(primary.url(), &prefix()).await;
    begin(&store, &id()).await.unwrap().unwrap();
    other.ask("replicaof no one");
    primary.ask(&format!("replicaof 127.0.0.1 {}", other.port()));
    until("it is a replica", || primary.says("info replication", "master_link_status:up")).await;
    let error = begin(&store, &id()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Ambiguous), "{}", told(&error));
    let error = begin(&store, &id()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", told(&error));
    primary.ask("replicaof no one");
    until_it_begins(&store).await;
}

/// The gap is shorter than a minute, and longer than every time-out on the way.
#[tokio::test]
async fn a_server_that_is_gone_for_a_while_fails_calls_at_once_and_is_found_again() {
    let mut redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let store = open(redis.url(), &prefix()).await;
    let before = id();
    let attempt = begin(&store, &before).await.unwrap().unwrap();
    redis.kill();
    let _ = store.get(&before).await;
    let gone = Instant::now();
    while gone.elapsed() < Duration::from_secs(6) {
        let asked = Instant::now();
        assert_eq!(begin(&store, &id()).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(asked.elapsed() < Duration::from_secs(3), "who calls a server that is gone should not hang");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    redis.restart().await;
    until_it_begins(&store).await;
    assert_eq!(store.settle(&before, &attempt, &completed("a")).await.unwrap(), Settled::Applied);
}

#[tokio::test]
async fn full_memory_refuses_new_calls_and_lets_those_that_run_go_on() {
    let redis = Redis::start(&["--maxmemory", "100mb", "--maxmemory-policy", "noeviction"]).await;
    let store = open(redis.url(), &prefix()).await;
    let (renewed, done, unknown, repeated) = (id(), id(), id(), id());
    let [of_renewed, of_done, of_unknown] = [
        begin(&store, &renewed).await.unwrap().unwrap(),
        begin(&store, &done).await.unwrap().unwrap(),
        begin(&store, &unknown).await.unwrap().unwrap(),
    ];
    let claim = claim();
    store.begin(&repeated, &claim).await.unwrap();
    // Far below what is there: no noise of buffers makes room.
    redis.ask("config set maxmemory 500kb");
    assert!(redis.ask("set one more").contains("OOM"), "memory is full");

    let fresh = id();
    let error = begin(&store, &fresh).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", told(&error));
    assert!(told(&error).contains("maxmemory") || told(&error).contains("OOM"), "{}", told(&error));
    assert!(store.get(&fresh).await.unwrap().is_none(), "nothing is left of it");
    assert_eq!(store.renew(&renewed, &of_renewed, Duration::from_secs(90)).await.unwrap(), Settled::Applied);
    assert_eq!(store.settle(&done, &of_done, &completed("an answer")).await.unwrap(), Settled::Applied);
    let verdict = onlyonce_core::Verdict::Unknown(onlyonce_core::Answer("?".into()));
    let how = onlyonce_core::Settlement { verdict, retain: Duration::from_secs(600) };
    assert_eq!(store.settle(&unknown, &of_unknown, &how).await.unwrap(), Settled::Applied);
    let again = store.begin(&repeated, &claim).await.unwrap();
    assert!(matches!(again, onlyonce_core::Begin::Acquired { attempt: 1, .. }), "its own begin: {again:?}");
    assert_eq!(store.get(&done).await.unwrap().unwrap().state.kind(), StateKind::Completed);
    redis.ask("config set maxmemory 100mb");
    assert!(begin(&store, &fresh).await.unwrap().is_some());
}

#[cfg(feature = "tls")]
mod tls {
    use std::process::Command;

    use super::*;

    const CHILD: &str = "ONLYONCE_TLS_CHILD";

    /// A certificate for localhost, signed by an authority of its own.
    fn certificates(folder: &std::path::Path) {
        let run = |words: &str| {
            let done = Command::new("openssl").current_dir(folder).args(words.split(' ')).output().unwrap();
            assert!(done.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&done.stderr));
        };
        std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
        run("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=test");
        run("req -newkey rsa:2048 -nodes -keyout redis.key -out redis.csr -subj /CN=localhost");
        run(
            "x509 -req -in redis.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out redis.crt -days 2 -extfile names",
        );
    }

    /// The authority is trusted by `SSL_CERT_FILE`, which a process has to be started with: so the test starts itself.
    #[tokio::test]
    async fn a_server_with_tls_is_trusted_by_its_authority_and_no_other() {
        if let Ok(url) = std::env::var(CHILD) {
            let store = open(url, &prefix()).await;
            let id = id();
            let attempt = begin(&store, &id).await.unwrap().unwrap();
            assert_eq!(store.settle(&id, &attempt, &completed("a")).await.unwrap(), Settled::Applied);
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        certificates(folder.path());
        let file = |name: &str| folder.path().join(name).display().to_string();
        let port = onlyonce_testkit::free_port();
        let (key, certificate, authority) = (file("redis.key"), file("redis.crt"), file("ca.crt"));
        let redis = Redis::start(&[
            "--tls-port",
            &port.to_string(),
            "--tls-key-file",
            &key,
            "--tls-cert-file",
            &certificate,
            "--tls-ca-cert-file",
            &authority,
            "--tls-auth-clients",
            "no",
        ])
        .await;
        let url = format!("rediss://localhost:{port}");
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([
            "tls::a_server_with_tls_is_trusted_by_its_authority_and_no_other",
            "--exact",
            "--nocapture",
        ]);
        let trusting = child.env(CHILD, &url).env("SSL_CERT_FILE", &authority).output().unwrap();
        assert!(trusting.status.success(), "{}", String::from_utf8_lossy(&trusting.stderr));
        assert!(redis.ask("info stats").contains("evicted_keys"), "it was the server of this test");
        let (error, said) = refused(url).await;
        assert!(matches!(error, OpenError::Connect { .. }) && said.contains("certificate"), "{said}");
    }
}
