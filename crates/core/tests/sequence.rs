//! The mark of a sequence never goes down.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::codec::CodecError;
use onlyonce_core::{
    AttemptId, Begin, Bytes, Claim, Class, Classify, Fence, Idempotency, MemoryStore, Order, RecordId,
    Refusal, Revision, SequenceKey, Settled, Settlement, Snapshot, Store, StoreError,
};

#[derive(Debug)]
struct No(Refusal);

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl Classify for No {
    fn classify(&self) -> Class {
        Class::Release
    }

    fn save(&self) -> Result<Bytes, CodecError> {
        Ok(Bytes::new())
    }

    fn revive(_: Bytes) -> Result<Self, CodecError> {
        Ok(Self(Refusal::Duplicate))
    }
}

async fn send(once: &Idempotency, number: u64) -> Result<u64, No> {
    let key = SequenceKey::new("partner-7", number).unwrap();
    once.sequence("pay", &key, Order::Increasing).run(async move { Ok(number) }).await
}

/// A store in which a higher number comes between a look that finds no mark and the begin that follows it.
#[derive(Debug)]
struct Overtaken {
    store: Arc<MemoryStore>,
    yet: AtomicBool,
}

#[async_trait]
impl Store for Overtaken {
    async fn begin(&self, id: &RecordId, claim: &Claim) -> Result<Begin, StoreError> {
        self.store.begin(id, claim).await
    }

    async fn renew(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        lease: Duration,
    ) -> Result<Settled, StoreError> {
        self.store.renew(id, attempt, lease).await
    }

    async fn settle(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        how: &Settlement,
    ) -> Result<Settled, StoreError> {
        self.store.settle(id, attempt, how).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        let found = self.store.get(id).await?;
        if found.is_none() && !self.yet.swap(true, Ordering::SeqCst) {
            let faster = Idempotency::builder_shared(self.store.clone()).build().unwrap();
            send(&faster, 24).await.unwrap();
        }
        Ok(found)
    }

    async fn forget(&self, id: &RecordId, seen: Fence) -> Result<Settled, StoreError> {
        self.store.forget(id, seen).await
    }

    async fn sweep(&self, limit: u32) -> Result<u32, StoreError> {
        self.store.sweep(limit).await
    }

    async fn changed(&self, id: &RecordId, seen: Revision, timeout: Duration) {
        self.store.changed(id, seen, timeout).await;
    }
}

#[tokio::test]
async fn a_lower_number_that_saw_no_mark_does_not_take_over_a_higher_one_that_came_since() {
    let store = Overtaken { store: Arc::new(MemoryStore::new()), yet: AtomicBool::new(false) };
    let once = Idempotency::new(store);
    for late in [10, 11] {
        let refused = send(&once, late).await;
        assert!(matches!(refused, Err(No(Refusal::OutOfOrder { last: 24 }))), "{late}: {refused:?}");
    }
    assert_eq!(send(&once, 25).await.unwrap(), 25);
}
