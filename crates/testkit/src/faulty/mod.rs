//! A store that fails on purpose.

mod fault;
mod plan;
mod rates;
mod store;

use std::sync::Arc;

use onlyonce_core::{Clock, Store, SystemClock};
use parking_lot::Mutex;

pub use fault::{Fault, Op};
use plan::Plan;
pub(crate) use plan::mix;
pub use rates::Rates;

/// Decorates a store with faults: scripted, or at random from a seed. `changed` always passes through.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::sync::Arc;
/// use onlyonce_core::{MemoryStore, RecordId, Store};
/// use onlyonce_testkit::{Fault, FaultyStore, Op};
///
/// let store = FaultyStore::new(Arc::new(MemoryStore::new()));
/// store.next(Op::Get, Fault::Unavailable, 2);
/// let id = RecordId::from_bytes([7; 32]);
/// assert!(store.get(&id).await.is_err());
/// assert!(store.get(&id).await.is_err());
/// assert!(store.get(&id).await.is_ok());
/// assert_eq!(store.calls(Op::Get), 3);
/// # }
/// ```
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    plan: Mutex<Plan>,
}

impl FaultyStore {
    /// A store without faults yet, whose delays are real.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, clock: Arc::new(SystemClock), plan: Mutex::default() }
    }

    /// Delays by `clock`.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// From now on, calls that no script speaks for fail at random. Which ones depends only on the seed, the record, the
    /// operation, and how many such calls went before: not on how the calls for different records interleave.
    pub fn at_random(&self, seed: u64, rates: Rates) {
        self.plan.lock().at_random(seed, rates);
    }

    /// The next `times` calls of this operation fail like this. Scripts of one operation follow each other.
    pub fn next(&self, op: Op, fault: Fault, times: u32) {
        self.plan.lock().script(op, fault, times);
    }

    /// All calls of this operation fail like this, once its scripts are used up, until [`heal`](Self::heal).
    pub fn always(&self, op: Op, fault: Fault) {
        self.plan.lock().always(op, fault);
    }

    /// From now on nothing fails. What hangs goes on hanging.
    pub fn heal(&self) {
        self.plan.lock().heal();
    }

    /// How many calls of this operation there were, the failed ones included.
    #[must_use]
    pub fn calls(&self, op: Op) -> u64 {
        self.plan.lock().calls(op)
    }
}
