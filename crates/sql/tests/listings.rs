//! What a listing costs: the answers of its records stay where they are.
#![cfg(all(unix, feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::time::Duration;

use common::*;
use onlyonce_core::{Answer, Filter, Inspect, Listed, Settlement, State, Store as _, Verdict};
use onlyonce_sql::{MySql, Postgres};

const RECORDS: usize = 20;
const LARGE: usize = 200_000;

async fn listings_leave_answers_where_they_are<DB: Served>() {
    let table = table();
    let near = open_table::<DB>(&table).await;
    for n in 0..RECORDS {
        let (id, answer) = (id(), Answer(vec![b'x'; LARGE].into()));
        let verdict = if n % 2 == 0 { Verdict::Completed(answer) } else { Verdict::Unknown(answer) };
        let attempt = begin(&near, &id).await.unwrap().unwrap();
        near.settle(&id, &attempt, &Settlement { verdict, retain: Duration::from_secs(600) }).await.unwrap();
    }
    let (proxy, store) = behind::<DB>(&table).await;
    let before = proxy.traffic().to_client;
    let mut listed = store.list(&Filter::default(), None, 1_000).await.unwrap().records;
    listed.extend(store.lapsed(1_000).await.unwrap());
    assert_eq!(store.unresolved(1_000).await.unwrap().count, RECORDS as u64 / 2);
    assert_eq!(listed.len(), RECORDS + RECORDS / 2);
    for listed in &listed {
        let (State::Completed(answer) | State::Lapsed { evidence: answer, .. }) = &listed.snapshot.state
        else {
            panic!("{listed:?}")
        };
        // Enough to say of what kind it is.
        assert_eq!(answer.0, vec![b'x'; Listed::ANSWER_BYTES]);
    }
    let bytes = proxy.traffic().to_client - before;
    assert!(bytes < 40_000, "{bytes} bytes for {} records", listed.len());
    let whole = store.get(&listed[0].id).await.unwrap().unwrap();
    assert!(
        matches!(&whole.state, State::Completed(answer) | State::Lapsed { evidence: answer, .. } if answer.0.len() == LARGE),
        "one record is read whole"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_of_mysql_leave_answers_where_they_are() {
    listings_leave_answers_where_they_are::<MySql>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_of_postgres_leave_answers_where_they_are() {
    listings_leave_answers_where_they_are::<Postgres>().await;
}
