//! Same-transaction mode: the claim, the effect and the answer commit together, or not at all.
//!
//! ```text
//!  lane (one call of a key at a time, holding nothing) ─▶ place (below the size of the pool) ─▶ BEGIN
//!    ─▶ claim: INSERT of the record ──┬─ it is ours ─▶ handler, with the Tx ─▶ settle + COMMIT ─▶ answer
//!                                     ├─ there is one ─▶ ROLLBACK, read, judge as everywhere
//!                                     └─ somebody holds it ─▶ wait as long as the call says, then "in progress"
//! ```

mod attempt;
mod call;
mod claim;
mod commit;
#[cfg(feature = "axum")]
mod extract;
mod handle;
mod lane;
mod transaction;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::policy::{Decision, Rules, decide};
use onlyonce_core::{
    Answer, Claim, Clock, ErrorKind, Idempotency, InputError, Intent, Moment, OnLapse, Owner, RecordId,
    Runner, Settings, Snapshot, Start, State, Store as _, StoreError, SystemClock, Takeover, Unstoppable,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::dialect::Database;
use crate::store::SqlStore;
use attempt::{Acquired, TxAttempt};
use claim::{Ask, Claimed, claim, held};
use lane::{Entered, Lanes, Leader, Stage};

pub use call::InTransaction;
pub use handle::{NoTx, Tx};

/// How often a record may move under a start before it gives up.
const ROUNDS: u32 = 16;
/// How many duplicates may wait at a time; more are told "in progress" at once.
const MAX_WAITERS: usize = 10_000;

/// Settings of an engine whose records commit with the effect; made by [`SqlStore::same_transaction`].
#[must_use]
pub struct SameTransaction<DB: Database> {
    store: SqlStore<DB>,
    settings: Settings,
    idle: Duration,
    reserve: usize,
}

impl<DB: Database> SqlStore<DB> {
    /// An engine whose calls run in a transaction together with their record: the strongest promise there is. The same
    /// layer and the same calls use it.
    ///
    /// ```no_run
    /// # #[cfg(feature = "postgres")]
    /// # async fn engine(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// use onlyonce_sql::PostgresStore;
    /// let once = PostgresStore::from_pool(pool).migrate().open().await?.same_transaction().build()?;
    /// # Ok(()) }
    /// ```
    pub fn same_transaction(&self) -> SameTransaction<DB> {
        SameTransaction {
            store: self.clone(),
            settings: Settings::default(),
            idle: Duration::from_secs(60),
            reserve: 1,
        }
    }
}

impl<DB: Database> SameTransaction<DB> {
    /// How calls are treated unless a handle says otherwise. `wait` is also how long a call waits for another process that
    /// has the same key in hand; `lease` and its renewal do not matter here.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// How long the server lets a transaction be idle before it ends it; 60 s by default. So long may a host that lost power
    /// keep its keys. On MySQL proper this is the `wait_timeout` of the connection, also while it is in the pool.
    pub fn idle_timeout(mut self, span: Duration) -> Self {
        self.idle = span;
        self
    }

    /// How many connections of the pool are left to handlers that ask for one beside their `Tx`; 1 by default. With none left,
    /// they could wait for each other.
    pub fn reserve(mut self, connections: usize) -> Self {
        self.reserve = connections;
        self
    }

    /// The engine.
    ///
    /// # Errors
    /// If the settings make no sense.
    pub fn build(self) -> Result<Idempotency, InputError> {
        if self.idle < Duration::from_secs(1) {
            return Err(InputError::new("idle_timeout is below 1 s: handlers would lose their transaction"));
        }
        let (store, settings) = (self.store.clone(), self.settings.clone());
        Idempotency::builder(store).settings(settings).runner(self.runner()).build()
    }

    /// Only the part that starts and ends attempts, for [`onlyonce_core::Builder::runner`].
    #[must_use]
    pub fn runner(self) -> Arc<dyn Runner> {
        let most = self.store.pool().options().get_max_connections() as usize;
        let places = DB::WRITERS.unwrap_or(most.saturating_sub(self.reserve)).max(1);
        Arc::new(TxRunner(Arc::new(Inner {
            patience: self.store.pool().options().get_acquire_timeout(),
            store: self.store,
            idle: self.idle,
            lanes: Arc::default(),
            places: Arc::new(Semaphore::new(places)),
            waiters: Semaphore::new(MAX_WAITERS),
        })))
    }
}

impl<DB: Database> fmt::Debug for SameTransaction<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SameTransaction").field("store", &self.store).finish_non_exhaustive()
    }
}

struct TxRunner<DB: Database>(Arc<Inner<DB>>);

struct Inner<DB: Database> {
    store: SqlStore<DB>,
    idle: Duration,
    lanes: Arc<Lanes>,
    /// Fewer than the pool has connections: a handler that asks for a second one must not wait for those who do the same.
    places: Arc<Semaphore>,
    waiters: Semaphore,
    /// How long to wait for a place.
    patience: Duration,
}

impl<DB: Database> fmt::Debug for TxRunner<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxRunner").field("store", &self.0.store).finish_non_exhaustive()
    }
}

#[async_trait]
impl<DB: Database> Runner for TxRunner<DB> {
    async fn start(&self, id: &RecordId, intent: &Arc<Intent>) -> Result<Start, StoreError> {
        let inner = &self.0;
        let until = SystemClock.now().plus(intent.settings.wait);
        let mut waited = false;
        loop {
            match inner.lanes.enter(id) {
                Entered::First(leader) => {
                    let work = lead(Arc::clone(inner), *id, Arc::clone(intent), leader, until);
                    // A claim that is under way is finished, whoever waits for it; dropped, it rolls back.
                    return Unstoppable::new(work, tracing::Span::current()).await;
                }
                Entered::Behind(mut stage) => {
                    if let Some(snapshot) = inner.follow(&mut stage, intent, until, waited).await? {
                        return Ok(Start::Taken(snapshot));
                    }
                    waited = true;
                }
            }
        }
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.0.store.get(id).await
    }
}

fn rules(settings: &Settings) -> Rules {
    Rules { mode: settings.mode, on_lapse: settings.on_lapse }
}

impl<DB: Database> Inner<DB> {
    /// Waits behind another call of this process. `None` if that one left nothing, and the way may be free. A call that
    /// waited for one already does not wait for the next: after a failure one proceeds, not a thousand in a row.
    async fn follow(
        &self,
        stage: &mut tokio::sync::watch::Receiver<Stage>,
        intent: &Intent,
        until: Moment,
        waited: bool,
    ) -> Result<Option<Snapshot>, StoreError> {
        let mut place = None;
        loop {
            let now = stage.borrow_and_update().clone();
            match now {
                Stage::Ended(snapshot) => return Ok(snapshot.map(|snapshot| *snapshot)),
                // It waited for longer than this call may, or this one tries by itself.
                Stage::Held => {
                    let over = until.since(SystemClock.now()).is_zero();
                    return Ok(over.then(|| held(intent)));
                }
                Stage::Failed(kind, why) => return Err(StoreError::new(kind, DB::WORD, "claim", &*why)),
                Stage::Claiming => {
                    // Only the database knows, and will have said it soon; unless that one may wait for longer than this.
                    let left = until.since(SystemClock.now());
                    let left = left.saturating_add(self.patience).saturating_add(self.store.link().patience);
                    if tokio::time::timeout(left, stage.changed()).await.is_err() {
                        return Ok(Some(held(intent)));
                    }
                }
                Stage::Running(snapshot) => {
                    let left = until.since(SystemClock.now());
                    let decision = decide(&snapshot, &intent.fingerprint, rules(&intent.settings));
                    let may_wait =
                        matches!(decision, Decision::InProgress { .. }) && !waited && !left.is_zero();
                    if may_wait && place.is_none() {
                        place = self.waiters.try_acquire().ok();
                    }
                    if !may_wait || place.is_none() {
                        return Ok(Some(*snapshot));
                    }
                    let _ = tokio::time::timeout(left, stage.changed()).await;
                }
            }
        }
    }

    async fn place(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        let place = tokio::time::timeout(self.patience, Arc::clone(&self.places).acquire_owned()).await;
        place.ok().and_then(Result::ok).ok_or_else(|| {
            let why = format!(
                "for {:?} all connections that may be used for transactions were in use; allow the pool more \
                 (max_connections), or keep handlers shorter",
                self.patience
            );
            StoreError::new(ErrorKind::Busy, DB::WORD, "claim", why)
        })
    }
}

/// Claims for the call that is first in its lane.
async fn lead<DB: Database>(
    inner: Arc<Inner<DB>>,
    id: RecordId,
    intent: Arc<Intent>,
    leader: Leader,
    until: Moment,
) -> Result<Start, StoreError> {
    match claim_first(&inner, &id, &intent, until).await {
        Ok(Led::Runs(acquired)) => {
            let attempt = TxAttempt::new(Arc::clone(&inner), id, *acquired, leader);
            Ok(Start::Run(Box::new(attempt)))
        }
        Ok(Led::Taken(snapshot)) => {
            leader.ended(Some(snapshot.clone()));
            Ok(Start::Taken(snapshot))
        }
        Ok(Led::Held) => {
            leader.held();
            Ok(Start::Taken(held(&intent)))
        }
        Err(error) => {
            leader.failed(&error);
            Err(error)
        }
    }
}

/// What the first call of a lane found.
enum Led<DB: Database> {
    /// The record is its own.
    Runs(Box<Acquired<DB>>),
    /// Somebody was there before.
    Taken(Snapshot),
    /// Somebody in another process holds the record, and was waited for in vain.
    Held,
}

async fn claim_first<DB: Database>(
    inner: &Inner<DB>,
    id: &RecordId,
    intent: &Intent,
    until: Moment,
) -> Result<Led<DB>, StoreError> {
    let settings = &intent.settings;
    let first = match settings.on_lapse {
        OnLapse::Rerun => Takeover::Allowed,
        OnLapse::Hold | OnLapse::Ask { .. } => Takeover::Never,
    };
    let mut takeover = first;
    let mut evidence = Answer::none();
    for _ in 0..ROUNDS {
        let claim_for = Claim {
            owner: Owner::random(),
            fingerprint: intent.fingerprint,
            // It matters only if the handler commits the claim by itself: then it is judged by this.
            lease: settings.max_run,
            retain_unsettled: settings.retain_unsettled,
            takeover,
            label: intent.label.clone(),
        };
        let wait = until.since(SystemClock.now());
        let place = inner.place().await?;
        let ask = Ask { id, claim: &claim_for, wait, idle: inner.idle };
        let snapshot = match claim(inner.store.link(), &ask).await? {
            Claimed::Acquired { transaction, fence, attempt, over } => {
                let claim = claim_for;
                let acquired = Acquired { transaction, claim, fence, number: attempt, over, evidence, place };
                return Ok(Led::Runs(Box::new(acquired)));
            }
            Claimed::Taken(snapshot) => snapshot,
            // They waited as long as they may: it counts as running.
            Claimed::Held => return Ok(Led::Held),
        };
        drop(place);
        match decide(&snapshot, &intent.fingerprint, rules(settings)) {
            Decision::Again => takeover = first,
            Decision::TakeOver(fence) => {
                takeover = Takeover::Seen(fence);
                if let State::Lapsed { evidence: seen, .. } = snapshot.state {
                    evidence = seen;
                }
            }
            // Committed and running: under a lease, or by a handler that committed its claim.
            Decision::InProgress { lease_left } if !until.since(SystemClock.now()).is_zero() => {
                let left = until.since(SystemClock.now());
                inner.store.changed(id, snapshot.revision(), left.min(lease_left)).await;
            }
            _ => return Ok(Led::Taken(snapshot)),
        }
    }
    Err(StoreError::new(ErrorKind::Busy, DB::WORD, "claim", "the record kept changing; retry"))
}
