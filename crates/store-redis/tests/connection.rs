//! One connection that all callers share.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use futures_util::FutureExt as _;
use onlyonce_core::{RecordId, State, Store};
use onlyonce_store_redis::RedisStore;
use tokio::task::JoinSet;

/// Answers from nothing to more than a socket takes at once.
fn answer(number: usize) -> String {
    let length = [0, 1, 100, 20_000, 200_000][number % 5];
    format!("{number}:{}", "x".repeat(length))
}

async fn filled(store: &RedisStore, count: usize) -> Vec<RecordId> {
    let mut ids = Vec::new();
    for number in 0..count {
        let id = id();
        let attempt = begin(store, &id).await.unwrap().unwrap();
        store.settle(&id, &attempt, &completed(answer(number))).await.unwrap();
        ids.push(id);
    }
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_reply_reaches_who_asked_for_it_also_while_others_give_up() {
    let store = Arc::new(open(url(), &prefix()).await);
    let ids = Arc::new(filled(&store, 50).await);
    let mut tasks = JoinSet::new();
    for task in 0..32_usize {
        let (store, ids) = (Arc::clone(&store), Arc::clone(&ids));
        tasks.spawn(async move {
            for round in 0..15 {
                let number = (task * 7 + round) % ids.len();
                // Sent, and nobody waits for the reply.
                assert!(store.get(&ids[(number + 1) % ids.len()]).now_or_never().is_none());
                match store.get(&ids[number]).await.unwrap().unwrap().state {
                    State::Completed(told) => assert!(told.0 == answer(number), "somebody else's answer"),
                    other => panic!("{other:?}"),
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

#[test]
fn a_store_outlives_the_runtime_that_connected_it() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let first = runtime();
    let (store, id) = first.block_on(async {
        let store = open(url(), &prefix()).await;
        let id = filled(&store, 1).await[0];
        (store, id)
    });
    drop(first);
    let found = runtime().block_on(async {
        tokio::time::timeout(Duration::from_secs(30), store.get(&id)).await.expect("an end of the wait")
    });
    assert!(found.unwrap().is_some());
}
