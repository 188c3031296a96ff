//! A store whose time is measured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce::{
    AttemptId, Begin, Claim, Clock, Cursor, Fence, Filter, Inspect, Listed, Page, RecordId, Revision,
    Settled, Settlement, Snapshot, StateKind, Store, StoreError, SystemClock,
};

/// Measures `onlyonce_store_seconds{operation, result}`.
#[derive(Debug)]
pub(crate) struct Timed(pub(crate) Arc<dyn Inspect>);

async fn timed<T>(
    operation: &'static str,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let begun = SystemClock.now();
    let done = work.await;
    let result = if done.is_ok() { "ok" } else { "error" };
    let took = SystemClock.now().since(begun);
    metrics::histogram!("onlyonce_store_seconds", "operation" => operation, "result" => result).record(took);
    done
}

#[async_trait]
impl Store for Timed {
    async fn begin(&self, id: &RecordId, claim: &Claim) -> Result<Begin, StoreError> {
        timed("begin", self.0.begin(id, claim)).await
    }

    async fn renew(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        lease: Duration,
    ) -> Result<Settled, StoreError> {
        timed("renew", self.0.renew(id, attempt, lease)).await
    }

    async fn settle(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        how: &Settlement,
    ) -> Result<Settled, StoreError> {
        timed("settle", self.0.settle(id, attempt, how)).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        timed("get", self.0.get(id)).await
    }

    async fn forget(&self, id: &RecordId, seen: Fence) -> Result<Settled, StoreError> {
        timed("forget", self.0.forget(id, seen)).await
    }

    async fn sweep(&self, limit: u32) -> Result<u32, StoreError> {
        timed("sweep", self.0.sweep(limit)).await
    }

    async fn changed(&self, id: &RecordId, seen: Revision, timeout: Duration) {
        self.0.changed(id, seen, timeout).await;
    }
}

#[async_trait]
impl Inspect for Timed {
    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: u32) -> Result<Page, StoreError> {
        timed("list", self.0.list(filter, after, limit)).await
    }

    async fn count(&self) -> Result<BTreeMap<StateKind, u64>, StoreError> {
        timed("count", self.0.count()).await
    }

    async fn lapsed(&self, limit: u32) -> Result<Vec<Listed>, StoreError> {
        timed("lapsed", self.0.lapsed(limit)).await
    }
}
