//! The embedded store as ratios: against the bare engine and SQLite (P2), and against itself with few records (P5).
//!
//! `cargo bench -p onlyonce-store-embedded` prints a table, one JSON row a line, and writes the rows as an array to the file
//! named by `ONLYONCE_BENCH_SUMMARY`. `--quick` takes shorter rounds, and `--records n` says how many records are many;
//! `--only p2` or `p5` leaves the other out.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a program that measures real time"
)]

mod callers;
mod grown;
mod raw;
mod rivals;
mod sqlite;

use onlyonce_bench_report::{Length, Report};

/// How much to measure.
#[derive(Debug, Clone, Copy)]
struct Effort {
    rounds: usize,
    /// Pairs of begin and settle in a round.
    pairs: u64,
    /// What counts as many records.
    records: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| arguments.iter().skip_while(|argument| *argument != name).nth(1);
    let mut effort = Length::from_args().pick(
        Effort { rounds: 1, pairs: 100, records: 10_000 },
        Effort { rounds: 5, pairs: 5_000, records: 200_000 },
        Effort { rounds: 7, pairs: 30_000, records: 10_000_000 },
    );
    if let Some(records) = value("--records") {
        effort.records = records.parse().expect("--records takes a number");
    }
    let only = value("--only").map(String::as_str);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut report = Report::default();
    if only.is_none_or(|only| only == "p2") {
        runtime.block_on(rivals::measure(effort, &mut report));
    }
    if only.is_none_or(|only| only == "p5") {
        runtime.block_on(grown::measure(effort, &mut report));
    }
    report.finish().expect("the summary is written");
}
