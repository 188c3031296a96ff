//! One record of a law: fresh, so that no law sees the leftovers of another, and with short words for what is done to it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{
    Answer, AttemptId, Begin, Claim, Fence, Fingerprint, FingerprintBuilder, Hash16, Label, Over, Owner,
    RecordId, Settled, Settlement, Snapshot, State, StateKind, Store, StoreError, Takeover, Verdict,
};

use crate::harness::Harness;

/// A lease that does not end while a law runs.
pub(super) const LONG: Duration = Duration::from_secs(3600);
/// A retention that does not end while a law runs.
pub(super) const KEPT: Duration = Duration::from_secs(24 * 3600);

pub(super) struct Case<'a> {
    harness: &'a dyn Harness,
    pub(super) store: Arc<dyn Store>,
    pub(super) id: RecordId,
    pub(super) label: Label,
}

impl<'a> Case<'a> {
    pub(super) fn new(harness: &'a dyn Harness) -> Self {
        Self::with_id(harness, RecordId::from_bytes(rand::random()))
    }

    pub(super) fn with_id(harness: &'a dyn Harness, id: RecordId) -> Self {
        let label = Label { route: "POST /law".into(), key: random_hash(), scope: random_hash() };
        Self { harness, store: harness.store(), id, label }
    }

    /// The unit of time.
    pub(super) fn unit(&self) -> Duration {
        self.harness.lease()
    }

    /// Lets that many units pass.
    pub(super) async fn pass(&self, units: u32) {
        self.harness.pass(self.unit() * units).await;
    }

    /// A claim of a new owner that takes nothing over.
    pub(super) fn claim(&self) -> Claim {
        Claim {
            owner: Owner::random(),
            fingerprint: payload("the payload"),
            lease: LONG,
            retain_unsettled: KEPT,
            takeover: Takeover::Never,
            label: self.label.clone(),
        }
    }

    pub(super) fn claim_over(&self, takeover: Takeover) -> Claim {
        Claim { takeover, ..self.claim() }
    }

    pub(super) async fn begin(&self, claim: &Claim) -> Begin {
        ok(self.store.begin(&self.id, claim).await)
    }

    /// Begins, and must acquire.
    pub(super) async fn acquire(&self, claim: &Claim) -> Acquired {
        match self.begin(claim).await {
            Begin::Acquired { fence, attempt, over } => Acquired { owner: claim.owner, fence, attempt, over },
            Begin::Taken(snapshot) => panic!("not acquired, but taken: {snapshot:?}"),
        }
    }

    /// Begins, and must be refused.
    pub(super) async fn taken(&self, claim: &Claim) -> Snapshot {
        match self.begin(claim).await {
            Begin::Taken(snapshot) => snapshot,
            acquired @ Begin::Acquired { .. } => panic!("not taken, but {acquired:?}"),
        }
    }

    /// Begins as a new owner with a long lease.
    pub(super) async fn run(&self) -> Acquired {
        self.acquire(&self.claim()).await
    }

    /// An attempt whose lease is over.
    pub(super) async fn lapse(&self) -> Acquired {
        let acquired = self.acquire(&Claim { lease: self.unit(), ..self.claim() }).await;
        self.pass(2).await;
        acquired
    }

    /// An attempt that was settled with this verdict.
    pub(super) async fn settled(&self, verdict: Verdict) -> Acquired {
        let acquired = self.run().await;
        assert_eq!(self.settle(&acquired.id(), verdict).await, Settled::Applied, "the first settlement");
        acquired
    }

    pub(super) async fn settle(&self, attempt: &AttemptId, verdict: Verdict) -> Settled {
        self.settle_for(attempt, verdict, KEPT).await
    }

    pub(super) async fn settle_for(
        &self,
        attempt: &AttemptId,
        verdict: Verdict,
        retain: Duration,
    ) -> Settled {
        ok(self.store.settle(&self.id, attempt, &Settlement { verdict, retain }).await)
    }

    pub(super) async fn renew(&self, attempt: &AttemptId, lease: Duration) -> Settled {
        ok(self.store.renew(&self.id, attempt, lease).await)
    }

    pub(super) async fn forget(&self, seen: Fence) -> Settled {
        ok(self.store.forget(&self.id, seen).await)
    }

    pub(super) async fn get(&self) -> Option<Snapshot> {
        ok(self.store.get(&self.id).await)
    }

    /// The record, which must be there.
    pub(super) async fn snapshot(&self) -> Snapshot {
        self.get().await.expect("the record is there")
    }

    pub(super) async fn state(&self) -> State {
        self.snapshot().await.state
    }

    pub(super) async fn kind(&self) -> StateKind {
        self.state().await.kind()
    }
}

/// An attempt that was acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Acquired {
    pub(super) owner: Owner,
    pub(super) fence: Fence,
    pub(super) attempt: u32,
    pub(super) over: Over,
}

impl Acquired {
    pub(super) fn id(&self) -> AttemptId {
        AttemptId { owner: self.owner, fence: Some(self.fence) }
    }

    pub(super) fn by_owner_alone(&self) -> AttemptId {
        AttemptId { owner: self.owner, fence: None }
    }

    /// Somebody else who guessed the fence, and the same owner with fences that it was not given.
    pub(super) fn impostors(&self) -> [AttemptId; 4] {
        let (higher, lower) = (Fence(self.fence.0 + 1), Fence(self.fence.0 - 1));
        let other = Owner::random();
        [
            AttemptId { owner: other, fence: Some(self.fence) },
            AttemptId { owner: other, fence: None },
            AttemptId { owner: self.owner, fence: Some(higher) },
            AttemptId { owner: self.owner, fence: Some(lower) },
        ]
    }
}

/// The result of a store call that must not fail.
pub(super) fn ok<T>(result: Result<T, StoreError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}: {}", error.source().map_or_else(String::new, ToString::to_string)),
    }
}

pub(super) fn payload(text: &str) -> Fingerprint {
    FingerprintBuilder::new().part(text.as_bytes()).finish()
}

pub(super) fn answer(text: &str) -> Answer {
    Answer(text.to_owned().into())
}

pub(super) fn completed(text: &str) -> Verdict {
    Verdict::Completed(answer(text))
}

pub(super) fn unknown(text: &str) -> Verdict {
    Verdict::Unknown(answer(text))
}

pub(super) fn random_hash() -> Hash16 {
    Hash16::from_bytes(rand::random())
}
