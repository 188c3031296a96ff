//! Benchmarks as ratios: every row compares two things measured side by side in one run, the median of interleaved rounds.
//!
//! `cargo xtask bench` runs this, prints the table and writes `target/bench/summary.json`. `--quick` takes fewer and
//! shorter rounds.

mod ids;
mod layer;
mod load;
mod memory;

use std::time::Duration;

use onlyonce_bench_report::Report;

/// How long and how often to measure.
#[derive(Debug, Clone, Copy)]
struct Effort {
    rounds: usize,
    round: Duration,
    records: usize,
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let effort = if quick {
        Effort { rounds: 5, round: Duration::from_millis(300), records: 100_000 }
    } else {
        Effort { rounds: 9, round: Duration::from_secs(2), records: 1_000_000 }
    };
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
