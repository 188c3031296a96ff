//! Attempts under leases, on any store: the [`Runner`] that does not need a transaction.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;

use crate::background;
use crate::clock::{Clock, Moment};
use crate::drain::{Tracker, Visit};
use crate::error::{ErrorKind, StoreError};
use crate::flight::{Flight, Flights};
use crate::keeper::{Chore, Keeper};
use crate::key::RecordId;
use crate::lease::Permit;
use crate::policy::{Decision, OnLapse, decide};
use crate::record::{
    AttemptId, Begin, Claim, Fence, Over, Owner, Revision, Settled, Settlement, Snapshot, Takeover, Verdict,
};
use crate::runner::{Attempt, Finish, Runner, Start};
use crate::settings::Intent;
use crate::store::Store;

/// How often an ambiguous call is repeated at once, before the caller is told.
const REPEATS: u32 = 3;
/// How often a record may move under a start before it gives up.
const ROUNDS: u32 = 16;
/// How many duplicates may wait at a time; more are told "in progress" at once.
const MAX_WAITERS: usize = 10_000;

#[derive(Debug, Clone)]
pub(crate) struct LeaseRunner(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keeper: Keeper,
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
    async fn start(&self, id: &RecordId, intent: &Intent) -> Result<Start, StoreError> {
        let inner = &self.0;
        inner.keeper.ensure_running();
        let visit = inner.tracker.enter().ok_or_else(closed)?;
        let mut patience = Patience::new(inner, intent);
        let mut takeover = match intent.settings.on_lapse {
            OnLapse::Rerun => Takeover::Allowed,
            OnLapse::Hold | OnLapse::Ask { .. } => Takeover::Never,
        };
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
                        Flight::new(*id, attempt_id, (fence, attempt), intent.clone(), sent, backend);
                    let attempt = LeaseAttempt::new(Arc::clone(inner), Arc::new(flight), over, visit);
                    return Ok(Start::Run(Box::new(attempt)));
                }
                (Begin::Taken(snapshot), ..) => snapshot,
            };
            match decide(&snapshot, &intent.fingerprint, intent.settings.rules()) {
                Decision::Again => {}
                Decision::TakeOver(fence) => takeover = Takeover::Seen(fence),
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
        inner.store.get(id).await?.map(Start::Taken).ok_or_else(restless)
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.0.store.get(id).await
    }
}

fn closed() -> StoreError {
    StoreError::unavailable(
        "onlyonce",
        "start",
        "the engine is closing; send the call to another instance or retry later",
    )
}

fn restless() -> StoreError {
    StoreError::unavailable("onlyonce", "start", "the record kept changing; retry")
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
        let mut repeats = 0;
        let begun = loop {
            match self.store.begin(id, &claim).await {
                Err(error) if error.kind() == ErrorKind::Ambiguous && repeats < REPEATS => {
                    tracing::warn!(record = %id, error = &error as &dyn std::error::Error, "begin is repeated");
                    repeats += 1;
                    self.clock.sleep(background::backoff(repeats)).await;
                }
                other => break other,
            }
        };
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
            let job = background::undo_begin(&self.inner.store, &self.inner.clock, *self.id, self.claim);
            self.inner.keeper.finish_later(Box::pin(job));
        }
    }
}

/// How long one caller still waits, and for which attempt.
struct Patience<'a> {
    inner: &'a Inner,
    until: Moment,
    waits_for: Option<Fence>,
    last: Option<Revision>,
    pause: Duration,
}

impl<'a> Patience<'a> {
    fn new(inner: &'a Inner, intent: &Intent) -> Self {
        let until = inner.clock.now().plus(intent.settings.wait);
        Self { inner, until, waits_for: None, last: None, pause: Duration::from_millis(1) }
    }

    /// What is left, if this caller may wait for the attempt at `fence`: not if it already waited for another one, or a
    /// release would let a thousand waiters run one after the other.
    fn left_for(&mut self, fence: Fence) -> Option<Duration> {
        let left = self.until.since(self.inner.clock.now());
        let same = *self.waits_for.get_or_insert(fence) == fence;
        (same && !left.is_zero()).then_some(left)
    }

    /// Waits for an attempt in this process. `None` if only the store can tell what is there now.
    async fn beside(&mut self, flight: &Flight, intent: &Intent) -> Option<Snapshot> {
        let snapshot = flight.snapshot()?;
        let Decision::InProgress { .. } = decide(&snapshot, &intent.fingerprint, intent.settings.rules())
        else {
            return Some(snapshot);
        };
        let Some(left) = self.left_for(snapshot.fence) else { return Some(snapshot) };
        let Ok(_place) = self.inner.waiters.try_acquire() else { return Some(snapshot) };
        tokio::select! {
            () = flight.over() => {}
            () = self.inner.clock.sleep(left) => {}
        }
        flight.snapshot()
    }

    /// Waits for an attempt elsewhere. False if there is no time left for it.
    async fn beside_store(&mut self, id: &RecordId, snapshot: &Snapshot, lease_left: Duration) -> bool {
        let Some(left) = self.left_for(snapshot.fence) else { return false };
        let Ok(_place) = self.inner.waiters.try_acquire() else { return false };
        let revision = snapshot.revision();
        if self.last.replace(revision) == Some(revision) {
            // The store woke us for nothing.
            self.inner.clock.sleep(self.pause.min(left)).await;
            self.pause = (self.pause * 2).min(Duration::from_millis(250));
        }
        self.inner.store.changed(id, revision, left.min(lease_left)).await;
        true
    }
}

/// An attempt whose lease is renewed until it is settled or dropped.
#[derive(Debug)]
struct LeaseAttempt {
    inner: Arc<Inner>,
    flight: Arc<Flight>,
    permit: Permit,
    over: Over,
    polled: bool,
    /// What a settle that is under way wants: dropped half-way, it is finished in the background.
    wanted: Option<Settlement>,
    visit: Option<Visit>,
    retain_unsettled: Duration,
}

impl LeaseAttempt {
    fn new(inner: Arc<Inner>, flight: Arc<Flight>, over: Over, visit: Visit) -> Self {
        let permit = Permit::new(flight.id, flight.fence, flight.number, Some(Arc::clone(&flight.lease)));
        inner.flights.insert(&flight);
        inner.keeper.schedule(Arc::clone(&flight) as _, flight.first_renewal());
        let retain_unsettled = flight.retain_unsettled();
        Self {
            inner,
            flight,
            permit,
            over,
            polled: false,
            wanted: None,
            visit: Some(visit),
            retain_unsettled,
        }
    }

    async fn settle_now(&self, how: &Settlement) -> Result<Settled, StoreError> {
        let mut tries = 0;
        loop {
            match self.inner.store.settle(&self.flight.id, &self.flight.attempt, how).await {
                Err(error) if tries < REPEATS && error.kind() != ErrorKind::Rejected => {
                    tracing::warn!(record = %self.flight.id, error = &error as &dyn std::error::Error, "settle is repeated");
                    tries += 1;
                    self.inner.clock.sleep(background::backoff(tries)).await;
                }
                other => return other,
            }
        }
    }

    fn land(&mut self) {
        self.visit = None;
        self.inner.keeper.cancel(self.flight.ticket());
        self.inner.flights.remove(&self.flight);
    }
}

#[async_trait]
impl Attempt for LeaseAttempt {
    fn permit(&self) -> &Permit {
        &self.permit
    }

    fn over(&self) -> Over {
        self.over
    }

    fn polled(&mut self) {
        self.polled = true;
    }

    async fn settle(mut self: Box<Self>, how: Settlement) -> Result<Finish, StoreError> {
        self.wanted = Some(how.clone());
        match self.settle_now(&how).await {
            Ok(Settled::Applied) => {
                self.flight.settled(how);
                self.land();
                Ok(Finish::Applied)
            }
            Ok(Settled::Lost) => {
                self.flight.gone();
                self.land();
                // What can't be read is as good as gone: the caller is told that nobody knows.
                Ok(Finish::Lost(self.inner.store.get(&self.flight.id).await.ok().flatten()))
            }
            Err(error) => {
                tracing::error!(record = %self.flight.id, error = &error as &dyn std::error::Error, "the answer is not stored yet");
                // Dropping `self` hands it to the background.
                Ok(Finish::Pending)
            }
        }
    }
}

impl Drop for LeaseAttempt {
    fn drop(&mut self) {
        let Some(visit) = self.visit.take() else { return };
        let doubtful = self.polled || self.over == Over::Lapsed;
        let how = self.wanted.take().unwrap_or_else(|| Settlement {
            verdict: if doubtful { Verdict::Unknown(Default::default()) } else { Verdict::Released },
            retain: self.retain_unsettled,
        });
        let (inner, flight) = (Arc::clone(&self.inner), Arc::clone(&self.flight));
        self.inner.keeper.finish_later(Box::pin(async move {
            let settled =
                background::settle(&*inner.store, &*inner.clock, &flight.id, &flight.attempt, &how).await;
            match settled {
                Some(Settled::Applied) => flight.settled(how),
                Some(Settled::Lost) | None => flight.gone(),
            }
            inner.keeper.cancel(flight.ticket());
            inner.flights.remove(&flight);
            drop(visit);
        }));
    }
}
