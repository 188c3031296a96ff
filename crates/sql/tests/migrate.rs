//! Starts: what is there already is not made again, and nobody waits for it.
#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "id"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::time::Duration;

use common::*;
use onlyonce_sql::outbox::{Event, Outbox};
use onlyonce_sql::{SqlGrants, SqlStore, guard};

const LONG: Duration = Duration::from_secs(60);

on_each! {
    a_start_waits_for_no_open_transaction_and_lets_none_wait,
    a_start_that_was_stopped_half_way_holds_up_nobody,
}

/// Somebody has written to every table, and not committed yet; a program starts, and a third writes.
async fn a_start_waits_for_no_open_transaction_and_lets_none_wait<DB: Effects>()
where
    sqlx::pool::PoolConnection<DB>: guard::Session,
{
    let records = table();
    let store = open_table::<DB>(&records).await;
    let pool = store.pool().clone();
    let (outbox, workers) = (Outbox::new(pool.clone()).table(&table()).unwrap(), table());
    let grants = SqlGrants::on(pool.clone(), "g").unwrap().table(&workers).unwrap();
    guard::migrate(&mut pool.acquire().await.unwrap()).await.unwrap();
    outbox.migrate().await.unwrap();
    grants.migrate().await.unwrap();

    let mut open = pool.begin_with(begin_to_write::<DB>()).await.unwrap();
    outbox.put(&mut open, &Event::new("orders", "1")).await.unwrap();
    DB::say(&mut open, "DELETE FROM onlyonce_dedup WHERE operation = 'no such operation'").await;
    DB::say(&mut open, &format!("DELETE FROM {records} WHERE attempts = 12345")).await;
    DB::say(&mut open, &format!("DELETE FROM {workers} WHERE worker = 12345")).await;

    let start = async {
        outbox.migrate().await.unwrap();
        grants.migrate().await.unwrap();
        guard::migrate(&mut pool.acquire().await.unwrap()).await.unwrap();
        SqlStore::<DB>::from_pool(pool.clone()).table(&records).migrate().open().await.unwrap();
    };
    tokio::time::timeout(LONG, start).await.expect("a start does not wait for the transactions of others");
    open.commit().await.unwrap();
    assert_eq!(outbox.waiting().await.unwrap(), 1);
}

fn begin_to_write<DB: Effects>() -> &'static str {
    if DB::url().starts_with("sqlite") { "BEGIN IMMEDIATE" } else { "BEGIN" }
}

/// On the pool of a program that goes on: whatever lock a migration took does not stay with it.
async fn a_start_that_was_stopped_half_way_holds_up_nobody<DB: Effects>() {
    let pool = open::<DB>().await.pool().clone();
    for polls in 1..30 {
        let mut opening = Box::pin(SqlStore::<DB>::from_pool(pool.clone()).table(table()).migrate().open());
        for _ in 0..polls {
            let ended = std::future::poll_fn(|context| {
                std::task::Poll::Ready(opening.as_mut().poll(context).is_ready())
            });
            if ended.await {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(opening);
    }
    let another = SqlStore::<DB>::builder(DB::url()).table(table()).migrate().open();
    tokio::time::timeout(LONG / 2, another).await.expect("nobody holds it up").unwrap();
}
