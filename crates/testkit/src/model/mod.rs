//! A second reading of the contract: a map behind a lock, as plain as can be, written without looking at how the other
//! stores do it. It is the yardstick for random tests, and with a [`Flaw`] the mutant that the laws must catch.

mod begin;
mod flaw;
mod harness;
mod inspect;
mod row;
mod store;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onlyonce_core::{Clock, ManualClock, RecordId};
use parking_lot::Mutex;
use tokio::sync::watch;

pub use flaw::Flaw;
pub use harness::ModelHarness;
use row::{Row, Time};

/// The reference model of a store.
///
/// ```
/// use onlyonce_core::{Idempotency, ManualClock};
/// use onlyonce_testkit::ModelStore;
/// let clock = ManualClock::new();
/// let once = Idempotency::builder(ModelStore::new(clock.clone())).clock(clock).build();
/// assert!(once.is_ok());
/// ```
#[derive(Debug)]
pub struct ModelStore {
    clock: ManualClock,
    flaw: Option<Flaw>,
    tables: Mutex<Tables>,
    is_full: AtomicBool,
    /// How often something has changed; who waits looks whenever it does.
    changes: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct Tables {
    rows: HashMap<RecordId, Row>,
    /// The highest fence that each record ever had, also after it is gone.
    fences: HashMap<RecordId, u64>,
}

impl ModelStore {
    /// An empty store on this clock.
    #[must_use]
    pub fn new(clock: ManualClock) -> Self {
        let changes = Arc::new(watch::Sender::new(0));
        Self { clock, flaw: None, tables: Mutex::default(), is_full: AtomicBool::new(false), changes }
    }

    /// The same store, with a mistake.
    #[must_use]
    pub fn with_flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    /// From now on there is no room for new records.
    pub fn fill(&self) {
        self.is_full.store(true, Ordering::SeqCst);
    }

    fn is_full(&self) -> bool {
        self.is_full.load(Ordering::SeqCst)
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn now(&self) -> Time {
        Duration::from_micros(self.clock.now().as_micros())
    }

    /// The row's place in the table.
    fn place(&self, id: &RecordId) -> RecordId {
        let mut bytes = *id.as_bytes();
        if self.has(Flaw::ShortIds) {
            bytes[16..].fill(0);
        }
        RecordId::from_bytes(bytes)
    }

    fn is_gone(&self, row: &Row, now: Time) -> bool {
        row.end(self.flaw) <= now && !self.has(Flaw::ExpiryIgnored)
    }

    fn tell_waiters(&self) {
        if !self.has(Flaw::LostWakeUp) {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }
}
