//! The Redis store as ratios, against the driver that sends the same commands on the same kind of connection (P3), and
//! locks against the raw commands and PING (P6, with the feature `locks`).
//!
//! `cargo bench -p onlyonce-store-redis` starts a private redis-server, prints a table, one JSON row a line, and writes the rows
//! as an array to the file named by `ONLYONCE_BENCH_SUMMARY`. `--quick` takes shorter rounds; `--only p3` leaves others out.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a program that measures real time"
)]

mod callers;
#[cfg(feature = "locks")]
mod locks;
mod raw;
mod server;
mod store;

use onlyonce_bench_report::{Length, Report};

/// How much to measure.
#[derive(Debug, Clone, Copy)]
struct Effort {
    rounds: usize,
    /// Calls in a round.
    calls: usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| arguments.iter().skip_while(|argument| *argument != name).nth(1);
    let (rounds, calls) = Length::from_args().pick((1, 200), (7, 20_000), (11, 60_000));
    let effort = Effort { rounds, calls };
    let only = value("--only").map(String::as_str);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut report = Report::default();
    if only.is_none_or(|only| only == "p3") {
        runtime.block_on(store::measure(effort, &mut report));
    }
    #[cfg(feature = "locks")]
    if only.is_none_or(|only| only == "p6") {
        runtime.block_on(locks::measure(effort, &mut report));
    }
    report.finish().expect("the summary is written");
}
