//! A store in this process's memory: for tests, for a single process, and as the reference for other stores.

mod calendar;
mod inspect;
mod shard;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::{Clock, Moment, SystemClock};
use crate::error::StoreError;
use crate::key::RecordId;
use crate::machine;
use crate::record::{AttemptId, Begin, Claim, Fence, Revision, Settled, Settlement, Snapshot};
use crate::store::Store;
use shard::Shard;

const BACKEND: &str = "memory";
/// A power of two, so that the first bits of an id name its shard and the shards are in the order of ids.
const SHARDS: usize = 64;

/// Records in memory: sharded, bounded, gone with the process.
///
/// It never evicts a record that has not expired: when it is full, [`begin`](Store::begin) is refused and nothing runs.
/// Expired records are absent at once, and are removed by [`sweep`](Store::sweep) and, a few at a time, by `begin`.
///
/// ```
/// use onlyonce_core::{Idempotency, MemoryStore};
/// let once = Idempotency::new(MemoryStore::new());
/// let small = MemoryStore::new().max_records(10_000).max_bytes(8 << 20);
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    /// The wall clock when the store was made. Fences go on from there with the time that really passes, as ages do: whoever takes one
    /// from the other must not be misled by a wall clock that is set.
    made: (Moment, u64),
    shards: Box<[Slot]>,
    usage: Usage,
    max_records: usize,
    max_bytes: usize,
}

/// How full the store is, over all shards.
#[derive(Debug, Default)]
struct Usage {
    records: AtomicUsize,
    bytes: AtomicUsize,
    next_to_sweep: AtomicU64,
}

#[derive(Debug, Default)]
struct Slot {
    shard: Mutex<Shard>,
    changed: Notify,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store for at most a million records and 1 GiB of answers, on the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            made: (SystemClock.now(), SystemClock.wall_micros()),
            shards: (0..SHARDS).map(|_| Slot::default()).collect(),
            usage: Usage::default(),
            max_records: 1_000_000,
            max_bytes: 1 << 30,
        }
    }

    /// Takes time from `clock`.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.made = (clock.now(), clock.wall_micros());
        self.clock = Arc::new(clock);
        self
    }

    /// Refuses new records beyond this number.
    #[must_use]
    pub fn max_records(mut self, records: usize) -> Self {
        self.max_records = records;
        self
    }

    /// Refuses new records while stored answers take more than this. Answers of calls that already run are still taken:
    /// a limit must not lose an answer.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// How many records there are, expired ones that were not swept yet included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.usage.records.load(Ordering::Relaxed)
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn slot(&self, id: &RecordId) -> &Slot {
        &self.shards[usize::from(id.as_bytes()[0]) * SHARDS / 256]
    }

    /// Runs one step on the shard of `id` and wakes whoever waits for a change there.
    fn write<T>(&self, id: &RecordId, step: impl FnOnce(&mut Shard, &Usage) -> T) -> T {
        let slot = self.slot(id);
        let result = step(&mut slot.shard.lock(), &self.usage);
        slot.changed.notify_waiters();
        result
    }

    fn is_full(&self) -> bool {
        self.len() >= self.max_records || self.usage.bytes.load(Ordering::Relaxed) >= self.max_bytes
    }

    fn full(&self) -> StoreError {
        let why = format!(
            "the store is full: {} of {} records, {} of {} bytes; raise max_records or max_bytes, or shorten `retain`",
            self.len(),
            self.max_records,
            self.usage.bytes.load(Ordering::Relaxed),
            self.max_bytes
        );
        StoreError::unavailable(BACKEND, "begin", why)
    }

    fn remove_expired(&self, limit: usize) -> usize {
        let now = self.clock.now();
        let first = self.usage.next_to_sweep.fetch_add(1, Ordering::Relaxed) as usize;
        let mut removed = 0;
        for offset in 0..SHARDS {
            if removed == limit {
                break;
            }
            let slot = &self.shards[(first + offset) % SHARDS];
            removed += slot.shard.lock().sweep(now, limit - removed, &self.usage);
        }
        removed
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn begin(&self, id: &RecordId, claim: &Claim) -> Result<Begin, StoreError> {
        if self.is_full() {
            self.remove_expired(SHARDS);
        }
        // Read again under the lock of one shard only: the limit is kept to within the number of concurrent begins.
        let full = self.is_full();
        let now = self.clock.now();
        let (made, wall) = self.made;
        let wall = Fence(Moment::from_micros(wall).plus(now.since(made)).as_micros());
        let begun = self.write(id, |shard, usage| {
            // Two for every one that comes keeps the store clean without a sweeper.
            shard.sweep_past(now, 2, usage);
            if full && !shard.contains(id) {
                return None;
            }
            Some(shard.begin(id, claim, now, wall, usage))
        });
        begun.ok_or_else(|| self.full())
    }

    fn ready(&self) -> Result<(), StoreError> {
        if self.is_full() {
            self.remove_expired(SHARDS);
        }
        if self.is_full() { Err(self.full()) } else { Ok(()) }
    }

    async fn renew(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        lease: Duration,
    ) -> Result<Settled, StoreError> {
        let now = self.clock.now();
        Ok(self.write(id, |shard, usage| {
            let step = machine::renew(shard.get(id), attempt, lease, now);
            shard.apply(id, step, usage)
        }))
    }

    async fn settle(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        how: &Settlement,
    ) -> Result<Settled, StoreError> {
        let now = self.clock.now();
        Ok(self.write(id, |shard, usage| {
            let step = machine::settle(shard.get(id), attempt, how, now);
            shard.apply(id, step, usage)
        }))
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        let now = self.clock.now();
        let shard = self.slot(id).shard.lock();
        Ok(shard.get(id).filter(|record| !record.is_expired(now)).map(|record| record.snapshot(now)))
    }

    async fn forget(&self, id: &RecordId, seen: Fence) -> Result<Settled, StoreError> {
        let now = self.clock.now();
        Ok(self.write(id, |shard, usage| {
            let verdict = machine::forget(shard.get(id), seen, now);
            if verdict == Settled::Applied {
                shard.remove(id, usage);
            }
            verdict
        }))
    }

    async fn sweep(&self, limit: u32) -> Result<u32, StoreError> {
        let removed = self.remove_expired(limit as usize);
        Ok(u32::try_from(removed).unwrap_or(limit))
    }

    async fn changed(&self, id: &RecordId, seen: Revision, timeout: Duration) {
        let slot = self.slot(id);
        let moved = async {
            loop {
                let notified = slot.changed.notified();
                tokio::pin!(notified);
                // Enlisted before the look, so that a change between the look and the wait is not missed.
                notified.as_mut().enable();
                if slot.shard.lock().get(id).map(machine::Record::revision) != Some(seen) {
                    return;
                }
                notified.await;
            }
        };
        tokio::select! {
            () = moved => {}
            () = self.clock.sleep(timeout) => {}
        }
    }
}
