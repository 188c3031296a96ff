//! Other libraries at the same job, side by side with ours in one run: `cargo xtask bench --peers`.
//!
//! One file a job; each adds its rows to the report. Rounds are interleaved, so that what the machine does meanwhile hits all
//! alike.

mod foreign;
mod ids;
mod redis;

use std::time::Duration;

use onlyonce_bench_report::{Length, Report};

/// How long and how often to measure.
#[derive(Debug, Clone, Copy)]
struct Effort {
    rounds: usize,
    round: Duration,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let effort = Length::from_args().pick(
        Effort { rounds: 1, round: Duration::from_millis(20) },
        Effort { rounds: 5, round: Duration::from_millis(200) },
        Effort { rounds: 9, round: Duration::from_secs(1) },
    );
    let url = std::env::var("ONLYONCE_TEST_REDIS_URL")
        .map_err(|_| "ONLYONCE_TEST_REDIS_URL is not set: run `cargo xtask bench --peers`")?;
    let mut report = Report::default();
    ids::measure(effort, &mut report);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(redis::measure(effort, &url, &mut report))?;
    report.finish()?;
    Ok(())
}
