//! A process may have several runtimes, and a store outlives the one that it was opened on.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::time::Duration;

use common::*;
use onlyonce_core::{Settled, StateKind, Store};
use tokio::runtime::Runtime;
use tokio::time::Instant;

fn a_store_outlives_the_runtime_that_opened_it(url: String) {
    let (first, second, id) = (Runtime::new().unwrap(), Runtime::new().unwrap(), id());
    let prefix = prefix();
    let (store, attempt) = first.block_on(async {
        let store = open(url, &prefix).await;
        let attempt = begin(&store, &id).await.unwrap().unwrap();
        (store, attempt)
    });
    drop(first);
    second.block_on(async {
        let clock = Instant::now();
        loop {
            match store.settle(&id, &attempt, &completed("a")).await {
                Ok(settled) => break assert_eq!(settled, Settled::Applied),
                Err(error) => {
                    assert!(clock.elapsed() < Duration::from_secs(30), "it does not recover: {error:?}")
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(store.get(&id).await.unwrap().unwrap().state.kind(), StateKind::Completed);
    });
}

#[test]
fn a_store_on_one_redis_outlives_the_runtime_that_opened_it() {
    a_store_outlives_the_runtime_that_opened_it(url());
}

#[test]
fn a_store_behind_sentinels_outlives_the_runtime_that_opened_it() {
    a_store_outlives_the_runtime_that_opened_it(sentinel_url());
}

#[test]
fn a_store_on_a_cluster_outlives_the_runtime_that_opened_it() {
    a_store_outlives_the_runtime_that_opened_it(cluster_url());
}
