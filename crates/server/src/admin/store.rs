//! A store whose time is measured.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::metrics::{Histogram, histogram};
use async_trait::async_trait;
use onlyonce::{
    AttemptId, Begin, Claim, Clock, Cursor, Fence, Filter, Inspect, Listed, Page, RecordId, Revision,
    Settled, Settlement, Snapshot, StateKind, Store, StoreError, SystemClock, Unresolved,
};

use super::metrics;
use crate::failure::Failure;

/// Measures `onlyonce_store_seconds{operation, result}`.
#[derive(Debug)]
pub(crate) struct Timed {
    store: Arc<dyn Inspect>,
    seconds: [Seconds; OPERATIONS.len()],
}

const OPERATIONS: [&str; 10] =
    ["begin", "settle", "renew", "get", "forget", "sweep", "list", "count", "lapsed", "unresolved"];

/// The histograms of one operation, found once: that costs more than counting.
#[derive(Debug, Default)]
struct Seconds {
    ok: OnceLock<Histogram>,
    error: OnceLock<Histogram>,
}

impl Timed {
    pub(crate) fn new(store: Arc<dyn Inspect>) -> Result<Self, Failure> {
        // What is found before there are metrics would count nowhere, for ever.
        metrics::install()?;
        Ok(Self { store, seconds: Default::default() })
    }

    async fn timed<T>(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let begun = SystemClock.now();
        let done = work.await;
        let took = SystemClock.now().since(begun);
        let mut known = OPERATIONS.iter().zip(&self.seconds);
        if let Some((_, seconds)) = known.find(|(known, _)| **known == operation) {
            let (result, histogram) =
                if done.is_ok() { ("ok", &seconds.ok) } else { ("error", &seconds.error) };
            let find = || histogram!("onlyonce_store_seconds", "operation" => operation, "result" => result);
            histogram.get_or_init(find).record(took);
        }
        done
    }
}

#[async_trait]
impl Store for Timed {
    async fn begin(&self, id: &RecordId, claim: &Claim) -> Result<Begin, StoreError> {
        self.timed("begin", self.store.begin(id, claim)).await
    }

    async fn renew(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        lease: Duration,
    ) -> Result<Settled, StoreError> {
        self.timed("renew", self.store.renew(id, attempt, lease)).await
    }

    async fn settle(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        how: &Settlement,
    ) -> Result<Settled, StoreError> {
        self.timed("settle", self.store.settle(id, attempt, how)).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.timed("get", self.store.get(id)).await
    }

    async fn forget(&self, id: &RecordId, seen: Fence) -> Result<Settled, StoreError> {
        self.timed("forget", self.store.forget(id, seen)).await
    }

    async fn sweep(&self, limit: u32) -> Result<u32, StoreError> {
        self.timed("sweep", self.store.sweep(limit)).await
    }

    fn ready(&self) -> Result<(), StoreError> {
        self.store.ready()
    }

    async fn changed(&self, id: &RecordId, seen: Revision, timeout: Duration) {
        self.store.changed(id, seen, timeout).await;
    }
}

#[async_trait]
impl Inspect for Timed {
    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: u32) -> Result<Page, StoreError> {
        self.timed("list", self.store.list(filter, after, limit)).await
    }

    async fn count(&self) -> Result<BTreeMap<StateKind, u64>, StoreError> {
        self.timed("count", self.store.count()).await
    }

    async fn lapsed(&self, limit: u32) -> Result<Vec<Listed>, StoreError> {
        self.timed("lapsed", self.store.lapsed(limit)).await
    }

    async fn unresolved(&self, limit: u32) -> Result<Unresolved, StoreError> {
        self.timed("unresolved", self.store.unresolved(limit)).await
    }
}
