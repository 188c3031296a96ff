//! A process may have several runtimes, and a store outlives the one that it was opened on.
#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::time::Duration;

use common::*;
use onlyonce_core::Store as _;
use onlyonce_sql::{Postgres, SqlStore};
use tokio::runtime::Runtime;

/// Waits for a record that nobody changes, until messages of its table are listened for.
async fn listens(store: &SqlStore<Postgres>, table: &str) {
    let id = id();
    // A connection whose runtime has ended fails once; then the pool has another.
    while begin(store, &id).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let seen = store.get(&id).await.unwrap().unwrap().revision();
    // A wait may end early; then it is begun again, as the engine does.
    let wait = async {
        loop {
            store.changed(&id, seen, Duration::from_secs(30)).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = wait => {}
        () = until_there_are(1, table) => {}
    }
}

async fn until_there_are(listeners: i64, table: &str) {
    let other = open_table::<Postgres>(table).await;
    let listening = format!("SELECT COUNT(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%once_{table}%'");
    while Postgres::number_on(other.pool(), &listening).await != listeners {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn who_waits_on_another_runtime_is_told_of_changes_too() {
    let (first, second, table) = (Runtime::new().unwrap(), Runtime::new().unwrap(), table());
    let store = first.block_on(async {
        let store = open_table::<Postgres>(&table).await;
        listens(&store, &table).await;
        store
    });
    drop(first);
    second.block_on(async {
        until_there_are(0, &table).await;
        listens(&store, &table).await;
    });
}
