//! Attempts under leases, on any store: the way that does not need a transaction.

mod attempt;
mod patience;

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::background;
use crate::clock::Clock;
use crate::drain::Tracker;
use crate::error::{ErrorKind, StoreError};
use crate::flight::{Begun, Flight, Flights};
use crate::keeper::Keeper;
use crate::key::RecordId;
use crate::policy::{Decision, decide};
use crate::record::{Answer, Begin, Claim, Owner, Snapshot, State, Takeover};
use crate::settings::Intent;
use crate::store::Store;
pub(crate) use attempt::LeaseAttempt;
use patience::Patience;

/// How often a record may move under a start before it gives up.
const ROUNDS: u32 = 16;
/// How many duplicates may wait at a time; more are told "in progress" at once.
const MAX_WAITERS: usize = 10_000;

#[derive(Debug)]
pub(crate) struct LeaseRunner(Arc<Field>);

/// What all attempts of an engine share.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keeper: Keeper,
    pub(crate) flights: Flights,
    waiters: Semaphore,
    tracker: Tracker,
}

/// The answer to a start, as [`Start`](crate::runner::Start) without a box.
#[derive(Debug)]
pub(crate) enum LeaseStart {
    Run(LeaseAttempt),
    Taken(Snapshot),
}

impl LeaseRunner {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, tracker: Tracker) -> Self {
        Self(Arc::new(Field {
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

    /// Starts an attempt, or says what is there. Waits for a running one as long as the settings say.
    ///
    /// Waiting is boxed, because it is rare, and would make the memory of every call larger.
    pub(crate) async fn start(&self, id: &RecordId, intent: &Arc<Intent>) -> Result<LeaseStart, StoreError> {
        let field = &self.0;
        field.keeper.ensure_running();
        let visit = field.tracker.enter().map_err(busy)?;
        // A lease counts from before the first copy of its begin that may have landed.
        let mut now = field.clock.now();
        let mut patience = Patience::new(field, intent, now);
        // A lapsed attempt is looked at before it is taken over, so that what was seen of it is not lost.
        let mut takeover = Takeover::Never;
        let mut evidence = Answer::none();
        let mut rounds = 0;
        while rounds < ROUNDS {
            if let Some(flight) = field.flights.get(id) {
                if let Some(snapshot) = Box::pin(patience.beside(&flight, intent)).await {
                    return Ok(LeaseStart::Taken(snapshot));
                }
                now = field.clock.now();
            }
            let snapshot = match field.begin(id, intent, takeover, &evidence).await? {
                (Begin::Acquired { fence, attempt, over }, owner) => {
                    let begun = Begun { fence, number: attempt, over, evidence };
                    let flight = Flight::new((*id, owner), begun, Arc::clone(intent), now, Arc::clone(field));
                    let attempt = LeaseAttempt::new(Arc::new(flight), visit);
                    if attempt.permit().is_lost() {
                        // Dropped unpolled: it is given back in the background.
                        return Err(busy(
                            "the store took longer to answer than the lease lasts; lengthen the lease",
                        ));
                    }
                    return Ok(LeaseStart::Run(attempt));
                }
                (Begin::Taken(snapshot), _) => snapshot,
            };
            match decide(&snapshot, &intent.fingerprint, intent.settings.rules()) {
                // What was seen is gone: an attempt that came between has ended without an effect.
                Decision::Again => (takeover, evidence) = (Takeover::Never, Answer::none()),
                Decision::TakeOver(fence) => {
                    takeover = Takeover::Seen(fence);
                    if let State::Lapsed { evidence: seen, .. } = snapshot.state {
                        evidence = seen;
                    }
                }
                // Waiting is bounded by its time alone: a short lease ends many waits before their time is over.
                Decision::InProgress { lease_left }
                    if Box::pin(patience.beside_store(id, &snapshot, lease_left)).await =>
                {
                    now = field.clock.now();
                    continue;
                }
                _ => return Ok(LeaseStart::Taken(snapshot)),
            }
            now = field.clock.now();
            rounds += 1;
        }
        let found = field.store.get(id).await?;
        found.map(LeaseStart::Taken).ok_or_else(|| busy("the record kept changing; retry"))
    }

    pub(crate) async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.0.store.get(id).await
    }
}

fn busy(why: &'static str) -> StoreError {
    StoreError::new(ErrorKind::Busy, "onlyonce", "start", why)
}

impl Field {
    /// One begin, repeated while it is ambiguous: the owner makes that safe.
    async fn begin(
        &self,
        id: &RecordId,
        intent: &Intent,
        takeover: Takeover,
        evidence: &Answer,
    ) -> Result<(Begin, Owner), StoreError> {
        let settings = &intent.settings;
        let claim = Claim {
            owner: Owner::random(),
            fingerprint: intent.fingerprint,
            lease: settings.lease,
            retain_unsettled: settings.retain_unsettled,
            takeover,
            label: intent.label.clone(),
        };
        let mut guard = BeginGuard { field: self, id, claim: &claim, evidence, landed: true };
        let (begun, repeats) = background::insist_on_begin(&*self.store, &*self.clock, id, &claim).await;
        guard.landed = background::may_have_landed(&begun, repeats);
        drop(guard);
        begun.map(|begun| (begun, claim.owner))
    }
}

/// Undoes a begin whose reply nobody heard: because it stayed ambiguous, or because its caller was dropped.
struct BeginGuard<'a> {
    field: &'a Field,
    id: &'a RecordId,
    claim: &'a Claim,
    /// What was seen of the attempt that it takes over.
    evidence: &'a Answer,
    landed: bool,
}

impl Drop for BeginGuard<'_> {
    fn drop(&mut self) {
        if self.landed {
            let visit = self.field.tracker.enter_even_if_closed();
            let (store, clock) = (&self.field.store, &self.field.clock);
            let evidence = self.evidence.clone();
            let job = background::undo_begin(store, clock, *self.id, self.claim, evidence, visit);
            self.field.keeper.finish_later(job);
        }
    }
}
