//! A job that runs on one of many nodes: `cargo run -p onlyonce-examples --bin nightly redis://localhost 2026-11-15 node-1`.
//!
//! Start it on every node at the same time. The lock lets one of them run; if that one dies, its lock runs out and another takes
//! over. The record of the day says whether the job is done, so that a node that comes late does not do it again.

use std::error::Error;
use std::time::Duration;

use onlyonce::lock::{LockError, Locks};
use onlyonce::redis::RedisStore;
use onlyonce::{Classify, Idempotency, OnLapse, Refusal, Settings};

/// The job itself can be repeated without harm, so an attempt that died half-way is run again.
#[derive(Debug, Classify)]
enum JobError {
    #[release]
    Stopped,
    #[unknown]
    Refused(Refusal),
}

impl From<Refusal> for JobError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (url, day, node) = (next("redis://localhost"), next("2026-11-15"), next("node-1"));

    let store = RedisStore::builder(url).prefix("nightly:").open().await?;
    let locks = Locks::new(store.locks());
    let settings = Settings { on_lapse: OnLapse::Rerun, ..Settings::default() };
    let once = Idempotency::builder(store).settings(settings).build()?;

    // Whoever comes second waits a little: if the first one dies, it takes over.
    let job =
        locks.key(format!("report of {day}")).ttl(Duration::from_secs(10)).wait(Duration::from_secs(60));
    let outcome = job
        .run_until_lost(|held| {
            let (once, node, day) = (once.clone(), node.clone(), day.clone());
            async move {
                let report = async {
                    println!("{node} writes the report of {day} under fence {}", held.fence());
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    if held.is_lost() { Err(JobError::Stopped) } else { Ok(node) }
                };
                once.call("report", day.as_str()).run(report).await
            }
        })
        .await;
    match outcome {
        Ok(Ok(by)) => println!("the report of {day} was written by {by}"),
        Ok(Err(JobError::Stopped)) => println!("not written: the lock was lost"),
        Ok(Err(JobError::Refused(refusal))) => println!("not written: {refusal}"),
        Err(LockError::Busy { .. }) => println!("another node is at it"),
        Err(error) => return Err(error.into()),
    }
    locks.close(Duration::from_secs(5)).await;
    Ok(())
}
