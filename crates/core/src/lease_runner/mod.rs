//! Attempts under leases, on any store: the [`Runner`] that does not need a transaction.

mod attempt;
mod patience;

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Semaphore;

use crate::background;
use crate::clock::{Clock, Moment};
use crate::drain::Tracker;
use crate::error::{ErrorKind, StoreError};
use crate::flight::{Flight, Flights};
use crate::keeper::Keeper;
use crate::key::RecordId;
use crate::policy::{Decision, OnLapse, decide};
use crate::record::{Answer, AttemptId, Begin, Claim, Owner, Snapshot, State, Takeover};
use crate::runner::{Attempt, Runner, Start};
use crate::settings::Intent;
use crate::store::Store;
use attempt::LeaseAttempt;
use patience::Patience;

/// How often a record may move under a start before it gives up.
const ROUNDS: u32 = 16;
/// How many duplicates may wait at a time; more are told "in progress" at once.
const MAX_WAITERS: usize = 10_000;

#[derive(Debug, Clone)]
pub(crate) struct LeaseRunner(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    keeper: Keeper,
    flights: Flights,
    waiters: Semaphore,
    tracker: Tracker,
}

impl LeaseRunner {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, tracker: Tracker) -> Self {
        Self(Arc::new(Inner {
            store,
            keeper: Keeper::new(Arc::clone(&clock)),
            clock,
            flights: Flights::default(),
            waiters: Semaphore::new(MAX_WAITERS),
            tracker,
        }))
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        &self.0.keeper
    }
}

#[async_trait]
impl Runner for LeaseRunner {
    async fn start(&self, id: &RecordId, intent: &Arc<Intent>) -> Result<Start, StoreError> {
        let inner = &self.0;
        inner.keeper.ensure_running();
        let visit = inner.tracker.enter().map_err(busy)?;
        let mut patience = Patience::new(inner, intent);
        let first_takeover = match intent.settings.on_lapse {
            OnLapse::Rerun => Takeover::Allowed,
            OnLapse::Hold | OnLapse::Ask { .. } => Takeover::Never,
        };
        let mut takeover = first_takeover;
        let mut evidence = Answer::none();
        let mut rounds = 0;
        while rounds < ROUNDS {
            if let Some(flight) = inner.flights.get(id)
                && let Some(snapshot) = patience.beside(&flight, intent).await
            {
                return Ok(Start::Taken(snapshot));
            }
            let snapshot = match inner.begin(id, intent, takeover).await? {
                (Begin::Acquired { fence, attempt, over }, owner, sent) => {
                    let attempt_id = AttemptId { owner, fence: Some(fence) };
                    let backend = (Arc::clone(&inner.store), Arc::clone(&inner.clock));
                    let flight =
                        Flight::new(*id, attempt_id, (fence, attempt), Arc::clone(intent), sent, backend);
                    let attempt =
                        LeaseAttempt::new(Arc::clone(inner), Arc::new(flight), (over, evidence), visit);
                    if attempt.permit().is_lost() {
                        // Dropped unpolled: it is given back in the background.
                        return Err(busy(
                            "the store took longer to answer than the lease lasts; lengthen the lease",
                        ));
                    }
                    return Ok(Start::Run(Box::new(attempt)));
                }
                (Begin::Taken(snapshot), ..) => snapshot,
            };
            match decide(&snapshot, &intent.fingerprint, intent.settings.rules()) {
                // What was seen is gone: an attempt that came between has ended without an effect.
                Decision::Again => takeover = first_takeover,
                Decision::TakeOver(fence) => {
                    takeover = Takeover::Seen(fence);
                    if let State::Lapsed { evidence: seen, .. } = snapshot.state {
                        evidence = seen;
                    }
                }
                // Waiting is bounded by its time alone: a short lease ends many waits before their time is over.
                Decision::InProgress { lease_left }
                    if patience.beside_store(id, &snapshot, lease_left).await =>
                {
                    continue;
                }
                _ => return Ok(Start::Taken(snapshot)),
            }
            rounds += 1;
        }
        inner.store.get(id).await?.map(Start::Taken).ok_or_else(|| busy("the record kept changing; retry"))
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.0.store.get(id).await
    }
}

fn busy(why: &'static str) -> StoreError {
    StoreError::new(ErrorKind::Busy, "onlyonce", "start", why)
}

impl Inner {
    /// One begin, repeated while it is ambiguous: the owner makes that safe.
    async fn begin(
        &self,
        id: &RecordId,
        intent: &Intent,
        takeover: Takeover,
    ) -> Result<(Begin, Owner, Moment), StoreError> {
        let settings = &intent.settings;
        let claim = Claim {
            owner: Owner::random(),
            fingerprint: intent.fingerprint,
            lease: settings.lease,
            retain_unsettled: settings.retain_unsettled,
            takeover,
            label: intent.label.clone(),
        };
        // The lease counts from the first copy that may have landed.
        let sent = self.clock.now();
        let mut guard = BeginGuard { inner: self, id, claim: &claim, landed: true };
        let (begun, repeats) = background::insist_on_begin(&*self.store, &*self.clock, id, &claim).await;
        // Only an ambiguous copy can still be on its way; also when its repeat found somebody else there.
        guard.landed = match &begun {
            Ok(Begin::Acquired { .. }) => false,
            Ok(Begin::Taken(_)) => repeats > 0,
            Err(error) => repeats > 0 || error.kind() == ErrorKind::Ambiguous,
        };
        drop(guard);
        begun.map(|begun| (begun, claim.owner, sent))
    }
}

/// Undoes a begin whose reply nobody heard: because it stayed ambiguous, or because its caller was dropped.
struct BeginGuard<'a> {
    inner: &'a Inner,
    id: &'a RecordId,
    claim: &'a Claim,
    landed: bool,
}

impl Drop for BeginGuard<'_> {
    fn drop(&mut self) {
        if self.landed {
            let visit = self.inner.tracker.enter_even_if_closed();
            let (store, clock) = (&self.inner.store, &self.inner.clock);
            let job = background::undo_begin(store, clock, *self.id, self.claim, visit);
            self.inner.keeper.finish_later(Box::pin(job));
        }
    }
}
