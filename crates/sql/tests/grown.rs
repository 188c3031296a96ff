//! A table that has grown: a call and a sweep cost what they cost among few records.
//!
//! `ONLYONCE_RECORDS` says among how many; `cargo xtask soak sql-grown` takes 10⁷. The same as P5 of `benches/sql`.
#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    dead_code,
    reason = "shared with a program that measures"
)]

#[path = "../benches/sql/databases.rs"]
mod databases;
#[path = "../benches/sql/grown.rs"]
mod grown;
#[path = "../benches/sql/ways.rs"]
mod ways;

use std::time::Duration;

use databases::Measured;
use grown::Rounds;

/// From here on figures are taken; with fewer records it is only shown that all of it works.
const MANY: u64 = 1_000_000;
/// The goal is 1.3, and the figures are shown beside it. A machine may be busy; but a pass over all records would take
/// hundreds of times as long.
const NO_PASS_OVER_ALL: f64 = 12.0;

async fn costs_the_same_among_many_records<DB: Measured>() {
    let records = std::env::var("ONLYONCE_RECORDS").map_or(20_000, |given| given.parse().unwrap());
    let rounds = if records < MANY {
        Rounds { count: 1, span: Duration::from_millis(20) }
    } else {
        Rounds { count: 9, span: Duration::from_secs(3) }
    };
    let ratios = grown::measure::<DB>(records, rounds).await;
    for (what, figures) in ratios.named() {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, median, most) = (sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1]);
        println!("{}: {what}: {median:.2} ({least:.2} to {most:.2}); goal 1.3", DB::LABEL);
        assert!(records < MANY || median < NO_PASS_OVER_ALL, "{what}: {figures:?}");
    }
}

macro_rules! on {
    ($($name:ident: $database:ty,)+) => {
        mod costs_the_same_among_many_records {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::costs_the_same_among_many_records::<$database>().await;
            })+
        }
    };
}

on! {
    mysql: onlyonce_sql::MySql,
    postgres: onlyonce_sql::Postgres,
    sqlite: onlyonce_sql::Sqlite,
}
