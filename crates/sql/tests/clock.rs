//! SQLite has no clock of its own: its records are kept for the time that really passes, whoever sets the clock of the machine.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{begin, claim, completed, id};
use onlyonce_core::codec::CodecError;
use onlyonce_core::{
    Begin, Bytes, Claim, Class, Classify, Clock, Idempotency, Inspect, ManualClock, Moment, Refusal,
    Settings, Settled, Sleep, StateKind, Store, Takeover, Uptime,
};
use onlyonce_sql::{InTransaction as _, SqlStore, Sqlite, Tx};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// The retention of `completed`, and of `claim` too.
const RETAIN: Duration = Duration::from_secs(600);

/// The clocks of a machine, of which the wall clock may be set.
#[derive(Debug, Clone, Default)]
struct Machine {
    steady: ManualClock,
    set_forward: Arc<AtomicU64>,
    boots: Arc<AtomicU64>,
}

impl Machine {
    fn set_forward(&self, span: Duration) {
        self.set_forward.fetch_add(span.as_micros() as u64, Ordering::SeqCst);
    }

    fn boot_again(&self) {
        self.boots.fetch_add(1, Ordering::SeqCst);
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
        let boot = u128::from(self.boots.load(Ordering::SeqCst)).to_be_bytes();
        Some(Uptime { boot, since_boot: self.steady.now() })
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

#[tokio::test]
async fn a_step_that_calls_have_seen_is_known_after_a_reboot_though_nobody_swept() {
    for sees in ["a call that begins", "a call that ends", "a retry"] {
        let directory = tempfile::tempdir().unwrap();
        let (path, clock) = (directory.path().join("once.db"), Machine::default());
        let store = open(&path, &clock).await;
        let (answered, other) = (id(), id());
        let running = begin(&store, &other).await.unwrap().unwrap();
        let attempt = begin(&store, &answered).await.unwrap().unwrap();
        store.settle(&answered, &attempt, &completed("paid")).await.unwrap();
        clock.set_forward(25 * DAY);
        match sees {
            "a call that begins" => drop(begin(&store, &id()).await.unwrap().unwrap()),
            "a call that ends" => drop(store.settle(&other, &running, &completed("done")).await.unwrap()),
            _ => assert_eq!(begin(&store, &answered).await.unwrap(), None),
        }
        store.pool().close().await;
        clock.boot_again();
        let store = open(&path, &clock).await;
        assert_eq!(begin(&store, &answered).await.unwrap(), None, "{sees}: it would run again");
    }
}

#[tokio::test]
async fn a_step_that_calls_in_one_transaction_with_their_effect_have_seen_is_known_after_a_reboot() {
    for sees in ["a call that begins", "a call that ends", "a call that is rolled back", "a retry"] {
        let directory = tempfile::tempdir().unwrap();
        let (path, clock) = (directory.path().join("once.db"), Machine::default());
        let store = open(&path, &clock).await;
        let once = in_one_transaction(&store);
        assert_eq!(pay(&once, "answered", || Ok(1)).await.unwrap(), 1);
        let set = || clock.set_forward(25 * DAY);
        match sees {
            "a call that ends" => {
                let clock = clock.clone();
                let set_within = move || {
                    clock.set_forward(25 * DAY);
                    Ok(2)
                };
                assert_eq!(pay(&once, "other", set_within).await.unwrap(), 2);
            }
            "a call that begins" => {
                set();
                assert_eq!(pay(&once, "other", || Ok(2)).await.unwrap(), 2);
            }
            "a call that is rolled back" => {
                set();
                pay(&once, "other", || Err(Failed)).await.unwrap_err();
            }
            _ => {
                set();
                assert_eq!(pay(&once, "answered", || Ok(9)).await.unwrap(), 1);
            }
        }
        store.pool().close().await;
        clock.boot_again();
        let once = in_one_transaction(&open(&path, &clock).await);
        assert_eq!(pay(&once, "answered", || Ok(9)).await.unwrap(), 1, "{sees}: it ran again");
    }
}

fn in_one_transaction(store: &SqlStore<Sqlite>) -> Idempotency {
    let settings = Settings { retain: RETAIN, ..Settings::default() };
    store.same_transaction().settings(settings).build().unwrap()
}

async fn pay(
    once: &Idempotency,
    key: &str,
    handler: impl FnOnce() -> Result<u32, Failed> + Send + 'static,
) -> Result<u32, Failed> {
    once.call("pay", key).input(&1).in_transaction(|_: Tx<Sqlite>| async { handler() }).await
}

/// A failure after which a call may be made again.
#[derive(Debug)]
struct Failed;

impl From<Refusal> for Failed {
    fn from(_: Refusal) -> Self {
        Self
    }
}

impl Classify for Failed {
    fn classify(&self) -> Class {
        Class::Release
    }

    fn save(&self) -> Result<Bytes, CodecError> {
        Ok(Bytes::new())
    }

    fn revive(_: Bytes) -> Result<Self, CodecError> {
        Err(CodecError::Damaged)
    }
}
