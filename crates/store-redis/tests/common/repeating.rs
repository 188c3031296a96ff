//! A store whose calls have the patience of the engine. While a Cluster fails over its nodes learn of it one after the other, so a
//! call may be refused by one of them after another has already served one.

use std::time::Duration;

use onlyonce_core::{
    AttemptId, Begin, Claim, ErrorKind, Fence, RecordId, Revision, Settled, Settlement, Snapshot, Store,
    StoreError,
};
use onlyonce_store_redis::RedisStore;
use tokio::time::Instant;

/// Far longer than a failover takes.
const PATIENCE: Duration = Duration::from_secs(40);

/// Makes a call again while it fails as unavailable or ambiguous, as the engine does: the same owner makes it safe.
#[derive(Debug)]
pub(crate) struct Repeating(pub(crate) RedisStore);

macro_rules! repeated {
    ($store:expr, $call:ident($($argument:expr),*)) => {{
        let clock = Instant::now();
        loop {
            match $store.$call($($argument),*).await {
                Err(error)
                    if clock.elapsed() < PATIENCE
                        && matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Ambiguous) =>
                {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                done => return done,
            }
        }
    }};
}

#[async_trait::async_trait]
impl Store for Repeating {
    async fn begin(&self, id: &RecordId, claim: &Claim) -> Result<Begin, StoreError> {
        repeated!(self.0, begin(id, claim))
    }

    async fn renew(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        lease: Duration,
    ) -> Result<Settled, StoreError> {
        repeated!(self.0, renew(id, attempt, lease))
    }

    async fn settle(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        how: &Settlement,
    ) -> Result<Settled, StoreError> {
        repeated!(self.0, settle(id, attempt, how))
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        repeated!(self.0, get(id))
    }

    async fn forget(&self, id: &RecordId, seen: Fence) -> Result<Settled, StoreError> {
        repeated!(self.0, forget(id, seen))
    }

    async fn sweep(&self, limit: u32) -> Result<u32, StoreError> {
        repeated!(self.0, sweep(limit))
    }

    async fn changed(&self, id: &RecordId, seen: Revision, timeout: Duration) {
        self.0.changed(id, seen, timeout).await;
    }
}
