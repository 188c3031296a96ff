//! P6b: Snowflake ids against the layout's own ceiling, and what an id costs below it against reading the clock.

use std::hint::black_box;
use std::time::Duration;

use onlyonce::id::{FixedWorker, Layout, Snowflake};
use onlyonce::{Clock, SystemClock};
use onlyonce_bench_report::{Goal, Report};
use tokio::runtime::{Builder, Runtime};

use crate::Effort;

/// How many ids a batch has.
const BATCH: u32 = 1000;
/// How many ids are made between two looks at the clock.
const BETWEEN: u64 = 1000;

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    for threads in [1, 2] {
        let runtime = runtime(threads);
        for (how, batch) in [("one by one", 1), ("in batches", BATCH)] {
            let figures: Vec<f64> = (0..effort.rounds)
                .map(|_| runtime.block_on(at_ceiling(threads, batch, effort.round)))
                .collect();
            let case = format!("ids {how}, {threads} threads / 4,096 a millisecond");
            report.add("P6b", &case, &figures, Goal::AtLeast(0.99));
        }
    }
    let runtime = runtime(1);
    let figures: Vec<f64> =
        (0..effort.rounds).map(|_| runtime.block_on(against_clock(effort.round))).collect();
    report.add("P6b", "an id below the ceiling / reading the clock", &figures, Goal::AtMost(1.5));
}

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).enable_all().build().expect("a runtime")
}

/// Ids a millisecond, as a part of what the layout has.
async fn at_ceiling(threads: usize, batch: u32, round: Duration) -> f64 {
    let ids = Snowflake::open(Layout::STANDARD, FixedWorker::new(1)).await.expect("a fixed worker");
    let started = SystemClock.now();
    let tasks: Vec<_> = (0..threads)
        .map(|_| {
            let ids = ids.clone();
            tokio::spawn(async move {
                let mut made = 0_u64;
                while SystemClock.now().since(started) < round {
                    if batch > 1 {
                        made += ids.reserve(batch).await.expect("ids").map(black_box).count() as u64;
                        continue;
                    }
                    for _ in 0..BETWEEN {
                        black_box(ids.next().await.expect("an id"));
                    }
                    made += BETWEEN;
                }
                made
            })
        })
        .collect();
    let mut made = 0;
    for task in tasks {
        made += task.await.expect("a task that does not panic");
    }
    let millis = SystemClock.now().since(started).as_secs_f64() * 1000.0;
    made as f64 / (millis * Layout::STANDARD.per_milli() as f64)
}

/// The time that an id takes where there is no ceiling to wait at, by the time that reading the clock takes.
async fn against_clock(round: Duration) -> f64 {
    let layout = Layout::<41, 1, 21>::new();
    let ids = Snowflake::open(layout, FixedWorker::new(1)).await.expect("a fixed worker");
    let of_ids = time_of(round, || _ = black_box(ids.try_next()));
    let of_clock = time_of(round, || _ = black_box(SystemClock.wall_micros()));
    of_ids / of_clock
}

fn time_of(round: Duration, mut what: impl FnMut()) -> f64 {
    let started = SystemClock.now();
    let mut times = 0_u64;
    while SystemClock.now().since(started) < round {
        (0..BETWEEN).for_each(|_| what());
        times += BETWEEN;
    }
    SystemClock.now().since(started).as_secs_f64() / times as f64
}
