//! Benchmarks as ratios: every row compares two things measured side by side in one run, the median of interleaved rounds.
//!
//! `cargo xtask bench` runs this, prints the table and writes `target/bench/summary.json`. `--quick` takes fewer and
//! shorter rounds, `--moment` only shows that it runs.

mod ids;
mod layer;
mod load;
mod memory;

use std::time::Duration;

use onlyonce_bench_report::{Length, Report};

/// How long and how often to measure.
#[derive(Debug, Clone, Copy)]
struct Effort {
    rounds: usize,
    round: Duration,
    records: usize,
}

fn main() {
    let effort = Length::from_args().pick(
        Effort { rounds: 1, round: Duration::from_millis(20), records: 1_000 },
        Effort { rounds: 5, round: Duration::from_millis(300), records: 100_000 },
        Effort { rounds: 9, round: Duration::from_secs(2), records: 1_000_000 },
    );
    let mut report = Report::default();
    // Memory first, before the load has made the heap its own.
    memory::measure(effort, &mut report);
    layer::measure(effort, &mut report);
    ids::measure(effort, &mut report);
    if let Err(error) = report.finish() {
        eprintln!("the summary could not be written: {error}");
        std::process::exit(1);
    }
}
