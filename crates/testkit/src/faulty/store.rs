//! The faults around each call.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::{
    AttemptId, Begin, Claim, ErrorKind, Fence, RecordId, Revision, Settled, Settlement, Snapshot, Store,
    StoreError,
};

use super::{Fault, FaultyStore, Op};

const BACKEND: &str = "faulty";

impl FaultyStore {
    /// Makes the call, or fails instead of it, before it or after it.
    async fn around<T, F>(
        &self,
        op: Op,
        id: Option<&RecordId>,
        call: impl FnOnce(Arc<dyn Store>) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
        T: Send + 'static,
    {
        let fault = self.plan.lock().fault(op, id);
        let call = call(Arc::clone(&self.inner));
        let ambiguous = |why: &'static str| Err(StoreError::ambiguous(BACKEND, op.name(), why));
        match fault {
            None => call.await,
            Some(Fault::Unavailable) => {
                Err(StoreError::unavailable(BACKEND, op.name(), "injected: unavailable"))
            }
            Some(Fault::Rejected) => {
                Err(StoreError::new(ErrorKind::Rejected, BACKEND, op.name(), "injected: rejected"))
            }
            Some(Fault::Corrupt) => Err(StoreError::corrupt(BACKEND, op.name(), "injected: unreadable")),
            Some(Fault::Panic) => panic!("injected: a panic in {}", op.name()),
            Some(Fault::RequestLost) => ambiguous("injected: the request was lost"),
            Some(Fault::ReplyLost) => {
                call.await?;
                ambiguous("injected: the reply was lost")
            }
            Some(Fault::LandsLate(after)) => {
                let sleep = self.clock.sleep(after);
                tokio::spawn(async move {
                    sleep.await;
                    call.await
                });
                ambiguous("injected: the request is still on its way")
            }
            Some(Fault::Delay(span)) => {
                self.clock.sleep(span).await;
                call.await
            }
            Some(Fault::HangBefore) => std::future::pending().await,
            Some(Fault::HangAfter) => {
                call.await?;
                std::future::pending().await
            }
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn begin(&self, id: &RecordId, claim: &Claim) -> Result<Begin, StoreError> {
        let (key, claim) = (*id, claim.clone());
        self.around(Op::Begin, Some(id), |store| async move { store.begin(&key, &claim).await }).await
    }

    async fn renew(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        lease: Duration,
    ) -> Result<Settled, StoreError> {
        let (key, attempt) = (*id, *attempt);
        self.around(Op::Renew, Some(id), move |store| async move { store.renew(&key, &attempt, lease).await })
            .await
    }

    async fn settle(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        how: &Settlement,
    ) -> Result<Settled, StoreError> {
        let (key, attempt, how) = (*id, *attempt, how.clone());
        self.around(Op::Settle, Some(id), |store| async move { store.settle(&key, &attempt, &how).await })
            .await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        let key = *id;
        self.around(Op::Get, Some(id), move |store| async move { store.get(&key).await }).await
    }

    async fn forget(&self, id: &RecordId, seen: Fence) -> Result<Settled, StoreError> {
        let key = *id;
        self.around(Op::Forget, Some(id), move |store| async move { store.forget(&key, seen).await }).await
    }

    async fn sweep(&self, limit: u32) -> Result<u32, StoreError> {
        self.around(Op::Sweep, None, move |store| async move { store.sweep(limit).await }).await
    }

    async fn changed(&self, id: &RecordId, seen: Revision, timeout: Duration) {
        self.inner.changed(id, seen, timeout).await;
    }
}
