//! A near cache in this process.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::cache::NearCache;
use crate::clock::{Clock, Moment, SystemClock};
use crate::key::RecordId;
use crate::record::{Snapshot, State};

const SHARDS: usize = 16;

/// Completed answers in this process, for at most 5 seconds each; at most 10,000 of them and 64 MiB. When it is full, what came first
/// goes first.
///
/// ```
/// use std::time::Duration;
/// use onlyonce_core::{LocalCache, MemoryStore, Tiered};
/// let cache = LocalCache::new().keep_for(Duration::from_secs(1)).capacity(1_000, 8 << 20);
/// let store = Tiered::new(MemoryStore::new()).with_cache(cache);
/// ```
pub struct LocalCache {
    shards: Vec<Mutex<Shard>>,
    clock: Arc<dyn Clock>,
    longest: Duration,
    most: usize,
    most_bytes: usize,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<RecordId, Entry>,
    /// In the order of coming; an entry that was replaced is still here under its old serial.
    order: VecDeque<(RecordId, u64)>,
    bytes: usize,
    /// Counts puts, to tell an entry from one that it replaced.
    serial: u64,
    /// Counts evictions.
    evictions: u64,
}

struct Entry {
    snapshot: Snapshot,
    put_at: Moment,
    until: Moment,
    serial: u64,
}

impl LocalCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            clock: Arc::new(SystemClock),
            longest: Duration::from_secs(5),
            most: 10_000,
            most_bytes: 64 << 20,
        }
    }

    /// For how long an answer is kept at most.
    #[must_use]
    pub fn keep_for(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// At most so many answers, and so many bytes of them.
    #[must_use]
    pub fn capacity(mut self, answers: usize, bytes: usize) -> Self {
        (self.most, self.most_bytes) = (answers, bytes);
        self
    }

    /// Another clock, for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    fn shard(&self, id: &RecordId) -> &Mutex<Shard> {
        &self.shards[usize::from(id.as_bytes()[0]) % SHARDS]
    }
}

impl Shard {
    fn remove(&mut self, id: &RecordId) {
        if let Some(entry) = self.entries.remove(id) {
            self.bytes -= size(&entry.snapshot);
        }
    }

    /// Makes room: first what is over, then what came first.
    fn shrink(&mut self, now: Moment, most: usize, most_bytes: usize) {
        while let Some((id, serial)) = self.order.front().copied() {
            let current = self.entries.get(&id).filter(|entry| entry.serial == serial);
            let over = current.is_none_or(|entry| entry.until <= now);
            if !over && self.entries.len() <= most && self.bytes <= most_bytes {
                break;
            }
            if current.is_some() {
                self.remove(&id);
            }
            self.order.pop_front();
        }
    }
}

/// What an entry costs, about.
fn size(snapshot: &Snapshot) -> usize {
    let answer = match &snapshot.state {
        State::Completed(answer) => answer.0.len(),
        _ => 0,
    };
    answer + 256
}

#[async_trait]
impl NearCache for LocalCache {
    fn longest(&self) -> Duration {
        self.longest
    }

    async fn get(&self, id: &RecordId) -> Option<Snapshot> {
        let now = self.clock.now();
        let shard = self.shard(id).lock();
        let entry = shard.entries.get(id).filter(|entry| now < entry.until)?;
        let passed = now.since(entry.put_at);
        let mut snapshot = entry.snapshot.clone();
        snapshot.age += passed;
        snapshot.expires_in = snapshot.expires_in.saturating_sub(passed);
        Some(snapshot)
    }

    fn mark(&self, id: &RecordId) -> u64 {
        self.shard(id).lock().evictions
    }

    async fn put(&self, id: &RecordId, snapshot: &Snapshot, span: Duration, mark: u64) {
        let now = self.clock.now();
        let mut shard = self.shard(id).lock();
        let (most, most_bytes) = (self.most.div_ceil(SHARDS), self.most_bytes.div_ceil(SHARDS));
        if shard.evictions != mark || size(snapshot) > most_bytes {
            return;
        }
        shard.remove(id);
        shard.serial += 1;
        let serial = shard.serial;
        let entry = Entry { snapshot: snapshot.clone(), put_at: now, until: now.plus(span), serial };
        shard.bytes += size(snapshot);
        shard.entries.insert(*id, entry);
        shard.order.push_back((*id, serial));
        shard.shrink(now, most, most_bytes);
    }

    async fn evict(&self, id: &RecordId) {
        let mut shard = self.shard(id).lock();
        shard.evictions += 1;
        shard.remove(id);
    }
}

impl Default for LocalCache {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LocalCache {
    // Answers do not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held: usize = self.shards.iter().map(|shard| shard.lock().entries.len()).sum();
        f.debug_struct("LocalCache")
            .field("held", &held)
            .field("longest", &self.longest)
            .finish_non_exhaustive()
    }
}
