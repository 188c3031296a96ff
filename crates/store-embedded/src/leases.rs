//! Who runs, until when, and who waits for it.
//!
//! Leases live in memory only, on the monotonic clock: they die with the process, as the attempts that hold them do, and so
//! a renewal writes nothing. A record on disk that is not settled and has no lease here is an orphan of a former process.

use std::collections::HashMap;

use onlyonce_core::{AttemptId, Fence, Moment, Owner, RecordId, Settled};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::time::{Now, Time};

const SHARDS: usize = 64;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    pub(crate) owner: Owner,
    pub(crate) fence: Fence,
    pub(crate) until: Moment,
}

#[derive(Debug, Default)]
struct Shard {
    leases: Mutex<HashMap<RecordId, Lease>>,
    changed: Notify,
}

#[derive(Debug)]
pub(crate) struct Leases(Box<[Shard]>);

impl Leases {
    pub(crate) fn new() -> Self {
        Self((0..SHARDS).map(|_| Shard::default()).collect())
    }

    fn shard(&self, id: &RecordId) -> &Shard {
        &self.0[usize::from(id.as_bytes()[0]) % SHARDS]
    }

    /// Woken by every change near `id`.
    pub(crate) fn changed(&self, id: &RecordId) -> &Notify {
        &self.shard(id).changed
    }

    pub(crate) fn put(&self, id: &RecordId, lease: Lease) {
        self.shard(id).leases.lock().insert(*id, lease);
    }

    /// The lease and the time. The time is taken under the lock, so that nobody renews at an earlier time a lease that
    /// somebody else was already told is over.
    pub(crate) fn look(&self, id: &RecordId, time: &Time) -> (Option<Lease>, Now) {
        let leases = self.shard(id).leases.lock();
        (leases.get(id).copied(), time.now())
    }

    pub(crate) fn renew(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        span: std::time::Duration,
        time: &Time,
    ) -> Settled {
        let mut leases = self.shard(id).leases.lock();
        let now = time.now().steady;
        match leases.get_mut(id) {
            Some(lease) if lease.belongs_to(attempt) && now < lease.until => {
                lease.until = now.plus(span);
                Settled::Applied
            }
            _ => Settled::Lost,
        }
    }

    /// Ends the lease of this fence, not that of a successor.
    pub(crate) fn end(&self, id: &RecordId, fence: Fence) {
        let mut leases = self.shard(id).leases.lock();
        if leases.get(id).is_some_and(|lease| lease.fence == fence) {
            leases.remove(id);
            if leases.capacity() > 1024 && leases.len() < leases.capacity() / 4 {
                let half = leases.capacity() / 2;
                leases.shrink_to(half);
            }
        }
    }

    /// Ends every lease that is not `alive`.
    pub(crate) fn retain(&self, alive: impl Fn(&RecordId, Fence) -> bool) {
        for shard in &self.0 {
            shard.leases.lock().retain(|id, lease| alive(id, lease.fence));
            shard.changed.notify_waiters();
        }
    }

    pub(crate) fn wake(&self, id: &RecordId) {
        self.shard(id).changed.notify_waiters();
    }
}

impl Lease {
    fn belongs_to(&self, attempt: &AttemptId) -> bool {
        self.owner == attempt.owner && attempt.fence.is_none_or(|fence| fence == self.fence)
    }
}
