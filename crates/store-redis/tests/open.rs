//! Opening a store: what is refused, in which words, and without secrets.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::error::Error;

use common::servers::Redis;
use common::*;
use onlyonce_core::Store;
use onlyonce_store_redis::{Concern, OpenError, RedisStore};

#[tokio::test]
async fn a_wrong_scheme_is_answered_with_those_there_are() {
    let error = RedisStore::open("http://localhost").await.unwrap_err();
    let said = error.to_string();
    for scheme in ["redis://", "rediss://", "redis-sentinel://", "redis-cluster://", "host:port;host:port"] {
        assert!(said.contains(scheme), "{said}");
    }
}

#[tokio::test]
async fn a_password_is_shown_nowhere() {
    let url = url().replace("redis://", "redis://:hunter2@");
    let builder = RedisStore::builder(url.clone());
    let mut said = format!("{builder:?}");
    // The test server has no password, and refuses one.
    if let Err(error) = builder.open().await {
        said += &format!("{error} {error:?} {:?}", error.source().map(ToString::to_string));
    }
    let nowhere = RedisStore::open("redis://ann:hunter2@127.0.0.1:1").await.unwrap_err();
    said += &format!("{nowhere} {nowhere:?}");
    let cluster = RedisStore::open("redis-cluster://ann:hunter2@127.0.0.1:1,127.0.0.1:2").await.unwrap_err();
    said += &format!("{cluster} {cluster:?} {:?}", cluster.source().map(ToString::to_string));
    assert!(!said.contains("hunter2"), "{said}");
    assert!(said.contains("127.0.0.1:1"), "{said}");
}

#[tokio::test]
async fn a_user_with_a_password_and_the_right_channel_is_let_in_and_stays_unseen() {
    let prefix = prefix();
    let user = format!("u{:x}", rand::random::<u64>());
    let mut acl = redis::cmd("ACL");
    acl.arg("SETUSER").arg(&user).arg("on").arg(">hunter2").arg(format!("~{prefix}*"));
    acl.arg(format!("&{prefix}*")).arg("+@all");
    acl.exec_async(&mut raw().await).await.unwrap();
    let store = open(url().replace("redis://", &format!("redis://{user}:hunter2@")), &prefix).await;
    assert!(begin(&store, &id()).await.unwrap().is_some());
    redis::cmd("ACL").arg("SETUSER").arg(&user).arg("-info").exec_async(&mut raw().await).await.unwrap();
    let unseen = RedisStore::builder(url().replace("redis://", &format!("redis://{user}:hunter2@")));
    let refused = unseen.prefix(&prefix).strict().open().await.unwrap_err();
    assert!(refused.to_string().contains("+info"), "{refused}");
    let said = format!("{store:?}");
    assert!(!said.contains("hunter2") && said.contains("127.0.0.1") && said.contains(&prefix), "{said}");
    redis::cmd("ACL").arg("DELUSER").arg(&user).exec_async(&mut raw().await).await.unwrap();
}

#[tokio::test]
async fn strict_refuses_eviction_and_missing_persistence_and_says_what_to_set() {
    let policy = |policy: &'static str| async move {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("maxmemory-policy").arg(policy).exec_async(&mut raw().await).await.unwrap();
    };
    policy("allkeys-lru").await;
    let strict = RedisStore::builder(url()).strict().open().await;
    let warned = RedisStore::builder(url()).open().await;
    policy("noeviction").await;
    assert!(warned.is_ok(), "without strict it is a warning");
    let Err(OpenError::Unsafe { concerns }) = strict else { panic!("it was opened") };
    assert!(concerns.contains(&Concern::Eviction { policy: "allkeys-lru".into() }), "{concerns:?}");
    let said = OpenError::Unsafe { concerns }.to_string();
    assert!(said.contains("set maxmemory-policy noeviction"), "{said}");
}

#[tokio::test]
async fn strict_takes_only_what_keeps_every_write_and_says_so() {
    let log: &[&str] = &["--appendonly", "yes"];
    let tables: [(&[&str], &str, Option<Concern>); 8] = [
        (log, "+@all", None),
        (log, "+@all -config", None),
        (&["--appendonly", "yes", "--appendfsync", "no"], "+@all", Some(Concern::NotSynced)),
        (&["--save", "3600 1"], "+@all", Some(Concern::SnapshotsOnly)),
        (&[], "+@all", Some(Concern::NoPersistence)),
        (&[], "+@all -config", Some(Concern::SnapshotsOnly)),
        (log, "+@all -info", Some(Concern::Unchecked)),
        (&["--appendonly", "yes", "--rename-command", "INFO", ""], "+@all", Some(Concern::Unchecked)),
    ];
    for (arguments, rights, concern) in tables {
        let server = Redis::start(arguments).await;
        server.ask(&format!("acl setuser ann on >hunter2 ~* &* {rights}"));
        let url = server.url().replace("redis://", "redis://ann:hunter2@");
        RedisStore::builder(url.clone()).open().await.expect("without strict it is a warning");
        let strict = RedisStore::builder(url).strict().open().await;
        match (strict, concern) {
            (Ok(_), None) => {}
            (Err(OpenError::Unsafe { concerns }), Some(concern)) => {
                assert_eq!(concerns, [concern], "{arguments:?} {rights}");
            }
            (opened, concern) => panic!("{arguments:?} {rights}: {opened:?}, not {concern:?}"),
        }
    }
}

#[tokio::test]
async fn a_node_of_a_cluster_is_not_taken_for_a_single_redis() {
    let cluster = cluster_url();
    let node = cluster.trim_start_matches("redis-cluster://").split(',').next().unwrap();
    let error = RedisStore::open(format!("redis://{node}")).await.unwrap_err();
    assert!(matches!(error, OpenError::WrongServer { .. }), "{error}");
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
}

#[tokio::test]
async fn a_single_redis_is_not_taken_for_a_cluster() {
    let error = RedisStore::open(url().replace("redis://", "redis-cluster://")).await.unwrap_err();
    assert!(matches!(error, OpenError::Connect { .. }), "{error}");
}

#[tokio::test]
async fn the_list_of_the_articles_opens_a_cluster() {
    let list = cluster_url().trim_start_matches("redis-cluster://").replace(',', ";");
    let store = open(list, &prefix()).await;
    assert!(begin(&store, &id()).await.unwrap().is_some());
}

#[tokio::test]
async fn connections_that_the_user_has_are_used() {
    let (prefix, id) = (prefix(), id());
    let single = RedisStore::from_connection(raw().await).prefix(&prefix).open().await.unwrap();
    assert!(begin(&single, &id).await.unwrap().is_some());
    assert!(open(url(), &prefix).await.get(&id).await.unwrap().is_some(), "the same records");

    let nodes = cluster_url();
    let nodes = nodes.trim_start_matches("redis-cluster://").split(',').map(|node| format!("redis://{node}"));
    let client = redis::cluster::ClusterClient::new(nodes).unwrap();
    let connection = client.get_async_connection().await.unwrap();
    let cluster = RedisStore::from_cluster_connection(connection).prefix(&prefix).open().await.unwrap();
    assert!(begin(&cluster, &id).await.unwrap().is_some());
    assert!(begin(&cluster, &id).await.unwrap().is_none());
}

#[tokio::test]
async fn databases_are_apart() {
    let (prefix, id) = (prefix(), id());
    let (zero, one) = (open(url(), &prefix).await, open(format!("{}/1", url()), &prefix).await);
    assert!(begin(&zero, &id).await.unwrap().is_some());
    assert!(begin(&one, &id).await.unwrap().is_some());
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_to_a_server_without_it_is_an_error_and_no_panic() {
    let error = RedisStore::open(url().replace("redis://", "rediss://")).await.unwrap_err();
    assert!(matches!(error, OpenError::Connect { .. }), "{error}");
}
