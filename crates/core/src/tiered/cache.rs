//! The seam for near caches.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::key::RecordId;
use crate::record::Snapshot;

/// A place for completed answers that is nearer than the truth; see [`Tiered`](super::Tiered).
///
/// It may lose everything at any time, and does not fail: what it can't say, the truth will. It has to be quick about that, so
/// one on a server has a short time-out, and after a failure is left alone for a while.
#[async_trait]
pub trait NearCache: fmt::Debug + Send + Sync + 'static {
    /// For how long an answer is kept at most: also the time for which it may outlive a `forget` elsewhere.
    fn longest(&self) -> Duration;

    /// The completed record, with its times as they are now, if it is there and its time is not over.
    async fn get(&self, id: &RecordId) -> Option<Snapshot>;

    /// A mark from before the truth was asked. Where [`evict`](Self::evict) came after it, a put with that mark does nothing.
    fn mark(&self, id: &RecordId) -> u64 {
        let _ = id;
        0
    }

    /// Keeps a completed record for at most `span`.
    async fn put(&self, id: &RecordId, snapshot: &Snapshot, span: Duration, mark: u64);

    /// Removes the record.
    async fn evict(&self, id: &RecordId);
}
