//! SQLite has no clock of its own: its records are kept for the time that really passes, whoever sets the clock of the machine.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{begin, claim, completed, id};
use onlyonce_core::{
    Begin, Claim, Clock, Inspect, ManualClock, Moment, Settled, Sleep, StateKind, Store, Takeover, Uptime,
};
use onlyonce_sql::{SqlStore, Sqlite};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// The retention of `completed`, and of `claim` too.
const RETAIN: Duration = Duration::from_secs(600);

/// The clocks of a machine, of which the wall clock may be set.
#[derive(Debug, Clone, Default)]
struct Machine {
    steady: ManualClock,
    set_forward: Arc<AtomicU64>,
}

impl Machine {
    fn set_forward(&self, span: Duration) {
        self.set_forward.fetch_add(span.as_micros() as u64, Ordering::SeqCst);
    }
}

impl Clock for Machine {
    fn now(&self) -> Moment {
        self.steady.now()
    }

    fn wall_micros(&self) -> u64 {
        self.steady.wall_micros() + self.set_forward.load(Ordering::SeqCst)
    }

    fn sleep(&self, span: Duration) -> Sleep {
        self.steady.sleep(span)
    }

    fn uptime(&self) -> Option<Uptime> {
        Some(Uptime { boot: [7; 16], since_boot: self.steady.now() })
    }
}

async fn open(path: &Path, clock: &Machine) -> SqlStore<Sqlite> {
    let url = format!("sqlite://{}", path.display());
    SqlStore::<Sqlite>::builder(url).clock(clock.clone()).migrate().open().await.unwrap()
}

#[tokio::test]
async fn a_clock_that_is_set_forward_makes_no_answered_call_run_again() {
    for is_running in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let (path, clock) = (directory.path().join("once.db"), Machine::default());
        let mut store = open(&path, &clock).await;
        let id = id();
        let attempt = begin(&store, &id).await.unwrap().unwrap();
        store.settle(&id, &attempt, &completed("paid")).await.unwrap();
        if is_running {
            clock.set_forward(25 * DAY);
        } else {
            store.pool().close().await;
            clock.set_forward(25 * DAY);
            store = open(&path, &clock).await;
        }
        assert_eq!(begin(&store, &id).await.unwrap(), None, "it would run again");
        assert_eq!(store.sweep(10).await.unwrap(), 0);
        assert_eq!(store.count().await.unwrap(), [(StateKind::Completed, 1)].into());
        // For one more retention, and no longer.
        clock.steady.advance(RETAIN - Duration::from_secs(1));
        assert_eq!(begin(&store, &id).await.unwrap(), None);
        clock.steady.advance(Duration::from_secs(1));
        assert_eq!(store.get(&id).await.unwrap(), None);
        assert!(begin(&store, &id).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn after_a_clock_that_was_set_forward_nothing_older_expires_for_one_more_retention() {
    let directory = tempfile::tempdir().unwrap();
    let (path, clock) = (directory.path().join("once.db"), Machine::default());
    let store = open(&path, &clock).await;
    let (old, new) = (id(), id());
    let attempt = begin(&store, &old).await.unwrap().unwrap();
    store.settle(&old, &attempt, &completed("paid")).await.unwrap();
    clock.steady.advance(RETAIN - Duration::from_secs(10));
    clock.set_forward(25 * DAY);
    assert_eq!(store.sweep(10).await.unwrap(), 0);
    clock.steady.advance(Duration::from_secs(1));
    let attempt = begin(&store, &new).await.unwrap().unwrap();
    store.settle(&new, &attempt, &completed("paid")).await.unwrap();
    store.pool().close().await;
    // It is noted: also the next process knows.
    let store = open(&path, &clock).await;
    clock.steady.advance(RETAIN - Duration::from_secs(2));
    assert_eq!(begin(&store, &old).await.unwrap(), None);
    assert_eq!(store.sweep(10).await.unwrap(), 0);
    clock.steady.advance(Duration::from_secs(2));
    assert_eq!(store.sweep(10).await.unwrap(), 2);
}

#[tokio::test]
async fn with_a_sane_clock_and_daily_restarts_everything_expires_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let (path, clock) = (directory.path().join("once.db"), Machine::default());
    let mut yesterday = None;
    for _ in 0..4 {
        let store = open(&path, &clock).await;
        if let Some(id) = yesterday {
            assert_eq!(store.get(&id).await.unwrap(), None);
            assert_eq!(store.sweep(10).await.unwrap(), 1);
        }
        let id = id();
        let attempt = begin(&store, &id).await.unwrap().unwrap();
        store.settle(&id, &attempt, &completed("paid")).await.unwrap();
        clock.steady.advance(RETAIN - Duration::from_secs(1));
        assert_eq!(begin(&store, &id).await.unwrap(), None);
        store.pool().close().await;
        clock.steady.advance(DAY);
        yesterday = Some(id);
    }
}

#[tokio::test]
async fn a_clock_that_is_set_ends_no_lease_of_a_call_that_runs() {
    let directory = tempfile::tempdir().unwrap();
    let (path, clock) = (directory.path().join("once.db"), Machine::default());
    let (one, other) = (open(&path, &clock).await, open(&path, &clock).await);
    let id = id();
    let running = begin(&one, &id).await.unwrap().unwrap();
    clock.set_forward(DAY);
    let greedy = Claim { takeover: Takeover::Allowed, ..claim() };
    assert!(matches!(other.begin(&id, &greedy).await.unwrap(), Begin::Taken(_)), "two would run");
    assert_eq!(one.renew(&id, &running, claim().lease).await.unwrap(), Settled::Applied);
    assert_eq!(one.settle(&id, &running, &completed("paid")).await.unwrap(), Settled::Applied);
    assert_eq!(begin(&other, &id).await.unwrap(), None);
}
