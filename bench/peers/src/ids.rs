//! P6b: Snowflake ids of 12 bits a millisecond, against snowflaked and ferroid.
//!
//! At the ceiling all that counts is how much of it is reached. Below it, in bursts of less than a millisecond's ids, what counts is
//! what an id costs. The peers have their worker number by configuration and know of no window; ferroid reads a clock that a thread
//! of its own moves once a millisecond, the others ask the system for every id.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use ferroid::generator::AtomicSnowflakeGenerator;
use ferroid::id::SnowflakeTwitterId;
use ferroid::time::{MonotonicClock, TWITTER_EPOCH};
use onlyonce::id::{FixedWorker, Layout, Snowflake};
use onlyonce::{Clock, SystemClock};
use onlyonce_bench_report::{Goal, Report};
use tokio::runtime::{Builder, Runtime};

use crate::Effort;

/// Ids in a burst: less than a millisecond has.
const BURST: u32 = 2000;
/// Makes `count` ids.
type Make = Arc<dyn Fn(u32) + Send + Sync>;

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let peers: [(&str, fn() -> Make); 2] = [("snowflaked", snowflaked), ("ferroid", ferroid)];
    for (peer, make) in peers {
        for (how, ours) in [("one by one", one_by_one as fn(&Runtime) -> Make), ("in batches", batches)] {
            let figures = rounds(effort, || in_bursts(&ours(&runtime), effort) / in_bursts(&make(), effort));
            let case = format!("an id {how}, time below the ceiling / {peer}");
            report.add("P6b", &case, &figures, Goal::AtMost(1.0));
        }
        for threads in [1, 2] {
            let figures = rounds(effort, || {
                at_ceiling(threads, &one_by_one(&runtime), effort) / at_ceiling(threads, &make(), effort)
            });
            let case = format!("ids at the ceiling, {threads} threads / {peer}");
            report.add("P6b", &case, &figures, Goal::AtLeast(0.99));
        }
    }
}

fn rounds(effort: Effort, figure: impl Fn() -> f64) -> Vec<f64> {
    (0..effort.rounds).map(|_| figure()).collect()
}

fn open(runtime: &Runtime) -> Snowflake {
    runtime.block_on(Snowflake::open(Layout::TWITTER, FixedWorker::new(1))).expect("a fixed worker")
}

fn one_by_one(runtime: &Runtime) -> Make {
    let (ids, handle) = (open(runtime), runtime.handle().clone());
    Arc::new(move |count| {
        for _ in 0..count {
            // Without a runtime as long as there is an id, as a caller in async code has one already.
            if black_box(ids.try_next()).is_err() {
                handle.block_on(ids.next()).expect("an id");
            }
        }
    })
}

fn batches(runtime: &Runtime) -> Make {
    let (ids, handle) = (open(runtime), runtime.handle().clone());
    Arc::new(move |count| {
        let batch = handle.block_on(ids.reserve(count)).expect("ids");
        batch.for_each(|id| _ = black_box(id));
    })
}

fn snowflaked() -> Make {
    let ids = snowflaked::sync::Generator::new(1);
    Arc::new(move |count| (0..count).for_each(|_| _ = black_box(ids.generate::<u64>())))
}

fn ferroid() -> Make {
    let clock = MonotonicClock::<1>::with_epoch(TWITTER_EPOCH);
    let ids = AtomicSnowflakeGenerator::<SnowflakeTwitterId, _>::new(1, clock);
    Arc::new(move |count| {
        (0..count).for_each(|_| _ = black_box(ids.next_id(|_| std::thread::yield_now())));
    })
}

/// Seconds an id, where there is no ceiling to wait at.
fn in_bursts(make: &Make, effort: Effort) -> f64 {
    let (mut spent, mut bursts) = (Duration::ZERO, 0);
    let started = SystemClock.now();
    while SystemClock.now().since(started) < effort.round {
        // The next millisecond, and whatever may be made up for.
        std::thread::sleep(Duration::from_millis(12));
        let burst = SystemClock.now();
        make(BURST);
        spent += SystemClock.now().since(burst);
        bursts += 1;
    }
    spent.as_secs_f64() / f64::from(bursts * BURST)
}

/// Ids a second.
fn at_ceiling(threads: usize, make: &Make, effort: Effort) -> f64 {
    let started = SystemClock.now();
    let threads: Vec<_> = (0..threads)
        .map(|_| {
            let make = Arc::clone(make);
            std::thread::spawn(move || {
                let mut made = 0_u32;
                while SystemClock.now().since(started) < effort.round {
                    make(1000);
                    made += 1000;
                }
                made
            })
        })
        .collect();
    let made: u32 = threads.into_iter().map(|thread| thread.join().expect("a thread that does not panic")).sum();
    f64::from(made) / SystemClock.now().since(started).as_secs_f64()
}
