//! What needs a person, looked at now and then: in the metrics all the time, in the log at the start.

use std::sync::Arc;
use std::time::Duration;

use ::metrics::{counter, gauge};
use onlyonce::{Clock, Inspect, SystemClock, Unresolved};

/// How often, at most.
const EVERY: Duration = Duration::from_secs(5);
/// How long a look may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// A look that takes long is followed by so many times as long a pause, so that it costs the store next to nothing.
const PAUSE: u32 = 200;
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(300);
/// How many are counted. More than anybody could look at, and few enough to be read.
const MOST: u32 = 10_000;

/// Looks for ever. What a crash left behind is known at the latest when its leases are over.
pub(crate) async fn watch(store: Arc<dyn Inspect>, longest_lease: Duration) {
    let started = SystemClock.now();
    let left_behind = counter!("onlyonce_left_behind_total");
    left_behind.increment(0);
    let mut told = 0;
    loop {
        let begun = SystemClock.now();
        match tokio::time::timeout(PATIENCE, store.unresolved(MOST)).await {
            Ok(Ok(found)) => {
                show(found);
                let may_be_left = begun.since(started) <= longest_lease + 2 * EVERY;
                if may_be_left && found.silent > told {
                    left_behind.increment(found.silent - told);
                    told = found.silent;
                    tell(found);
                }
            }
            Ok(Err(error)) => {
                onlyonce::seldom!(
                    warn,
                    error = &error as &dyn std::error::Error,
                    "what needs a person can't be counted"
                );
            }
            Err(_) => onlyonce::seldom!(warn, "counting what needs a person takes too long"),
        }
        let took = SystemClock.now().since(begun);
        tokio::time::sleep(took.saturating_mul(PAUSE).clamp(EVERY, LONGEST)).await;
    }
}

fn show(found: Unresolved) {
    gauge!("onlyonce_unknown_outcomes").set(found.count as f64);
    gauge!("onlyonce_unknown_oldest_seconds").set(found.oldest.unwrap_or_default().as_secs_f64());
}

fn tell(found: Unresolved) {
    let Unresolved { count, silent, oldest } = found;
    let oldest = oldest.unwrap_or_default().as_secs();
    tracing::warn!(
        unknown = count,
        left_behind = silent,
        oldest_seconds = oldest,
        "calls were left behind without a word, probably by a crash: whether they had their effect is unknown; see `onlyonce records list --state unknown`"
    );
}
