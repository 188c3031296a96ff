//! A lease as its holder sees it: a local deadline, and the signal that it is lost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::key::RecordId;
use crate::loan::Loan;
use crate::record::Fence;

/// Timers stand still while the machine is suspended, the clock of leases does not: it is looked at this often.
const SLICE: Duration = Duration::from_secs(1);

/// The local side of a lease.
///
/// The deadline counts from when the granting request was *sent*, so it never lies behind the backend's own.
#[derive(Debug)]
pub(crate) struct Lease {
    clock: Arc<dyn Clock>,
    deadline: AtomicU64,
    lost: AtomicBool,
    moved: Notify,
}

impl Lease {
    pub(crate) fn new(clock: Arc<dyn Clock>, deadline: Moment) -> Self {
        let deadline = AtomicU64::new(deadline.as_micros());
        Self { clock, deadline, lost: AtomicBool::new(false), moved: Notify::new() }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_micros(self.deadline.load(Ordering::Acquire))
    }

    pub(crate) fn extend(&self, deadline: Moment) {
        self.deadline.fetch_max(deadline.as_micros(), Ordering::AcqRel);
        self.moved.notify_waiters();
    }

    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.moved.notify_waiters();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire) || self.clock.now() >= self.deadline()
    }

    /// Ends at the local deadline, even if no reply ever says so.
    pub(crate) async fn lost(&self) {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.is_lost() {
                return;
            }
            tokio::select! {
                () = moved => {}
                () = self.clock.sleep(self.deadline().since(self.clock.now()).min(SLICE)) => {}
            }
        }
    }
}

/// What a permission rests on: an attempt under a lease, or one that can't be lost.
pub(crate) trait Basis: Send + Sync {
    fn id(&self) -> RecordId;
    fn fence(&self) -> Fence;
    fn attempt(&self) -> u32;
    fn lease(&self) -> Option<&Lease>;
    fn loan(&self) -> Option<&Loan>;
}

/// The effect and its record end together.
struct Lent {
    id: RecordId,
    fence: Fence,
    attempt: u32,
    loan: Loan,
}

impl Basis for Lent {
    fn id(&self) -> RecordId {
        self.id
    }

    fn fence(&self) -> Fence {
        self.fence
    }

    fn attempt(&self) -> u32 {
        self.attempt
    }

    fn lease(&self) -> Option<&Lease> {
        None
    }

    fn loan(&self) -> Option<&Loan> {
        Some(&self.loan)
    }
}

/// The permission under which a handler runs: which attempt it is, and whether it still holds.
///
/// Cheap to clone. In HTTP handlers it is found in the request's extensions.
#[derive(Clone)]
pub struct Permit(Arc<dyn Basis>);

impl Permit {
    pub(crate) fn new(attempt: Arc<dyn Basis>) -> Self {
        Self(attempt)
    }

    /// A permission that can't be lost, because the effect and its record end together; it comes with what they share. For
    /// runners.
    #[must_use]
    pub fn lending(id: RecordId, fence: Fence, attempt: u32, loan: Loan) -> Self {
        Self(Arc::new(Lent { id, fence, attempt, loan }))
    }

    /// What the handler may borrow, such as the transaction of a record that commits with the effect.
    #[must_use]
    pub fn loan(&self) -> Option<&Loan> {
        self.0.loan()
    }

    /// The record of this call; put it into logs.
    #[must_use]
    pub fn record_id(&self) -> RecordId {
        self.0.id()
    }

    /// The fence of this attempt; send it to the resource that is changed.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.0.fence()
    }

    /// The number of this attempt, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.attempt()
    }

    /// Whether somebody else may run by now.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.lease().is_some_and(Lease::is_lost)
    }

    /// How long the permission holds if it is not renewed; `None` where it can't be lost.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.0.lease().map(|lease| lease.deadline().since(lease.clock.now()))
    }

    /// Ends when the permission is lost: stop before the next effect. Never ends where it can't be lost.
    pub async fn lost(&self) {
        match self.0.lease() {
            Some(lease) => lease.lost().await,
            None => std::future::pending().await,
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("id", &self.record_id())
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}
