//! A database as the truth, with a near cache for completed answers.

mod cache;
mod local;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use cache::NearCache;
pub use local::LocalCache;

use crate::clock::{Clock, SystemClock};
use crate::error::StoreError;
use crate::key::RecordId;
use crate::record::{
    AttemptId, Begin, Claim, Fence, Revision, Settled, Settlement, Snapshot, State, StateKind,
};
use crate::store::{Cursor, Filter, Inspect, Listed, Page, Store, Unresolved};

/// A store whose completed answers are also kept near: a replay from there makes no round trip to the truth.
///
/// Only what can't change any more is cached: completed answers. What runs, was released or is unknown is always the truth's to
/// say; so the cache can make a call slower or faster, but never run it twice. If the cache fails, the truth answers.
///
/// An answer is kept near for the rest of its retention, and at most for as long as its cache says: 5 seconds in process
/// ([`LocalCache`]), 60 seconds in a Redis. That is also how long another process may go on replaying an answer after
/// [`forget`](Store::forget); in this process it is gone at once. [`get`](Store::get) and all looking through the store ask the truth.
///
/// ```
/// use onlyonce_core::{Idempotency, MemoryStore, Tiered};
/// let once = Idempotency::new(Tiered::new(MemoryStore::new())); // in earnest: a store in your database
/// ```
///
/// Tiers can be stacked: `Tiered::new(Tiered::new(database).with_cache(redis))`.
pub struct Tiered<S: ?Sized> {
    cache: Arc<dyn NearCache>,
    clock: Arc<dyn Clock>,
    truth: Arc<S>,
}

impl<S: Store> Tiered<S> {
    /// The truth, with a [`LocalCache`] before it.
    #[must_use]
    pub fn new(truth: S) -> Self {
        Self::shared(Arc::new(truth))
    }
}

impl<S: Store + ?Sized> Tiered<S> {
    /// As [`new`](Tiered::new), for a store that others hold too.
    #[must_use]
    pub fn shared(truth: Arc<S>) -> Self {
        Self { cache: Arc::new(LocalCache::new()), clock: Arc::new(SystemClock), truth }
    }

    /// Another cache, such as `onlyonce::redis::RedisCache`, or a [`LocalCache`] of another size.
    #[must_use]
    pub fn with_cache(mut self, cache: impl NearCache) -> Self {
        self.cache = Arc::new(cache);
        self
    }

    /// Another clock, for tests; give it to the cache too.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }
}

impl<S: ?Sized + fmt::Debug> fmt::Debug for Tiered<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tiered")
            .field("cache", &self.cache)
            .field("truth", &&*self.truth)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for Tiered<S> {
    async fn begin(&self, id: &RecordId, claim: &Claim) -> Result<Begin, StoreError> {
        if let Some(snapshot) = self.cache.get(id).await {
            return Ok(Begin::Taken(snapshot));
        }
        // The time before the question, so that the answer is never kept for longer than the truth keeps it.
        let (mark, asked) = (self.cache.mark(id), self.clock.now());
        let begun = self.truth.begin(id, claim).await?;
        if let Begin::Taken(snapshot) = &begun
            && matches!(snapshot.state, State::Completed(_))
        {
            let left = snapshot.expires_in.saturating_sub(self.clock.now().since(asked));
            let span = left.min(self.cache.longest());
            if !span.is_zero() {
                self.cache.put(id, snapshot, span, mark).await;
            }
        }
        Ok(begun)
    }

    async fn renew(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        lease: Duration,
    ) -> Result<Settled, StoreError> {
        self.truth.renew(id, attempt, lease).await
    }

    async fn settle(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        how: &Settlement,
    ) -> Result<Settled, StoreError> {
        self.truth.settle(id, attempt, how).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.truth.get(id).await
    }

    async fn forget(&self, id: &RecordId, seen: Fence) -> Result<Settled, StoreError> {
        let forgotten = self.truth.forget(id, seen).await;
        // Also after an error, which may have happened, and after "lost": then the cache may be what is wrong.
        self.cache.evict(id).await;
        forgotten
    }

    async fn sweep(&self, limit: u32) -> Result<u32, StoreError> {
        self.truth.sweep(limit).await
    }

    fn ready(&self) -> Result<(), StoreError> {
        self.truth.ready()
    }

    async fn changed(&self, id: &RecordId, seen: Revision, timeout: Duration) {
        self.truth.changed(id, seen, timeout).await;
    }
}

#[async_trait]
impl<S: Inspect + ?Sized> Inspect for Tiered<S> {
    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: u32) -> Result<Page, StoreError> {
        self.truth.list(filter, after, limit).await
    }

    async fn count(&self) -> Result<BTreeMap<StateKind, u64>, StoreError> {
        self.truth.count().await
    }

    async fn lapsed(&self, limit: u32) -> Result<Vec<Listed>, StoreError> {
        self.truth.lapsed(limit).await
    }

    async fn unresolved(&self, limit: u32) -> Result<Unresolved, StoreError> {
        self.truth.unresolved(limit).await
    }
}
