//! The engine: what adapters and users hold.

use std::sync::Arc;
use std::time::Duration;

use crate::builder::Builder;
use crate::call::Call;
use crate::clock::Clock;
use crate::drain::Tracker;
use crate::error::{InputError, StoreError};
use crate::keeper::Keeper;
use crate::key::RecordId;
use crate::lease_runner::{LeaseRunner, LeaseStart};
use crate::record::{Fence, Settled, Snapshot, StateKind};
use crate::runner::{Runner as _, Start};
use crate::running::{Asking, Held, Prior, Running, Started};
use crate::sequence::{Order, SequenceKey};
use crate::settings::{Intent, Settings};
use crate::store::Store;
use crate::tracked::Tracked;

/// Makes calls happen at most once and gives every retry the same answer. Cheap to clone; clones share everything.
///
/// ```
/// # use onlyonce_core::{Idempotency, MemoryStore, Refusal, Class, Classify, Bytes, codec::CodecError};
/// # #[derive(Debug)] struct PayError;
/// # impl From<Refusal> for PayError { fn from(_: Refusal) -> Self { Self } }
/// # impl Classify for PayError {
/// #     fn classify(&self) -> Class { Class::Release }
/// #     fn save(&self) -> Result<Bytes, CodecError> { Ok(Bytes::new()) }
/// #     fn revive(_: Bytes) -> Result<Self, CodecError> { Ok(Self) }
/// # }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), PayError> {
/// let once = Idempotency::new(MemoryStore::new());
/// for _ in 0..3 {
///     let receipt: String = once
///         .call("charge", "order-42")
///         .input(&100)
///         .run(async { Ok::<_, PayError>("receipt 7".to_owned()) }) // runs the first time only
///         .await?;
///     assert_eq!(receipt, "receipt 7");
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Idempotency {
    engine: Arc<Engine>,
    settings: Arc<Settings>,
}

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) way: Way,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tracker: Tracker,
}

/// How attempts are started: under leases, which are this crate's own and need no boxes, or by a runner from elsewhere.
#[derive(Debug)]
pub(crate) enum Way {
    Leases(LeaseRunner),
    Other(Tracked),
}

impl Way {
    pub(crate) fn keeper(&self) -> &Keeper {
        match self {
            Self::Leases(runner) => runner.keeper(),
            Self::Other(runner) => &runner.keeper,
        }
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        match self {
            Self::Leases(runner) => runner.get(id).await,
            Self::Other(runner) => runner.get(id).await,
        }
    }
}

impl Idempotency {
    pub(crate) fn assemble(engine: Engine, settings: Settings) -> Self {
        Self { engine: Arc::new(engine), settings: Arc::new(settings) }
    }

    /// An engine on this store with the default settings.
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Builder::new(Arc::new(store)).assemble()
    }

    /// Starts a configured engine.
    #[must_use]
    pub fn builder(store: impl Store) -> Builder {
        Builder::new(Arc::new(store))
    }

    /// The same, on a store that is shared already.
    #[must_use]
    pub fn builder_shared(store: Arc<dyn Store>) -> Builder {
        Builder::new(store)
    }

    /// The settings of calls through this handle.
    #[must_use]
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// A handle to the same engine whose calls are treated differently.
    ///
    /// # Errors
    /// If the settings make no sense.
    pub fn with_settings(&self, settings: Settings) -> Result<Self, InputError> {
        settings.validate()?;
        Ok(Self { engine: Arc::clone(&self.engine), settings: Arc::new(settings) })
    }

    /// The clock that the engine uses.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.engine.clock
    }

    /// Whether attempts hold nothing but a lease. Else, as in a transaction of the business, each may hold a connection and locks
    /// until it ends.
    #[must_use]
    pub fn has_leases(&self) -> bool {
        matches!(self.engine.way, Way::Leases(_))
    }

    /// A call of `operation` under `key`, to be run at most once.
    pub fn call(&self, operation: &str, key: impl Into<Box<str>>) -> Call {
        Call::new(self.clone(), operation, key.into())
    }

    /// A call of `operation` that its caller has numbered, to be run at most once.
    ///
    /// ```
    /// # use onlyonce_core::{Idempotency, MemoryStore, Order, SequenceKey};
    /// # let once = Idempotency::new(MemoryStore::new());
    /// let call = once.sequence("transfer", &SequenceKey::new("partner-7", 42)?, Order::Increasing);
    /// # Ok::<(), onlyonce_core::InputError>(())
    /// ```
    pub fn sequence(&self, operation: &str, key: &SequenceKey, order: Order) -> Call {
        let call = self.call(operation, SequenceKey::key_of(key.sequence()).as_str());
        let call = call.scope(key.credential());
        match order {
            Order::Unique => call,
            Order::Increasing => call.increasing(key.sequence()),
        }
    }

    /// Starts a call by hand: for adapters. [`call`](Self::call) is simpler.
    ///
    /// # Errors
    /// If the store fails; then nothing may run.
    ///
    /// # Cancel safety
    /// Dropped half-way, whatever it may have taken is released in the background.
    pub async fn start(&self, id: &RecordId, intent: &Arc<Intent>) -> Result<Started, StoreError> {
        let attempt = match &self.engine.way {
            Way::Leases(runner) => match runner.start(id, intent).await? {
                LeaseStart::Run(attempt) => Held::Leased(attempt),
                LeaseStart::Taken(snapshot) => return Ok(Started::Prior(Prior::judge(&snapshot, intent))),
            },
            Way::Other(runner) => match runner.start(id, intent).await? {
                Start::Run(attempt) => Held::Other(attempt),
                Start::Taken(snapshot) => return Ok(Started::Prior(Prior::judge(&snapshot, intent))),
            },
        };
        let running = Running::new(attempt, Arc::clone(intent));
        Ok(if running.must_ask() { Started::Ask(Asking::new(running)) } else { Started::Run(running) })
    }

    /// What came before this call, without starting it: for calls that may no longer run. `None` if it was never made, or
    /// was released.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn prior(&self, id: &RecordId, intent: &Intent) -> Result<Option<Prior>, StoreError> {
        let found = self.engine.way.get(id).await?;
        let made = found.filter(|snapshot| snapshot.state.kind() != StateKind::Released);
        Ok(made.map(|snapshot| Prior::judge(&snapshot, intent)))
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn store_and_clock(&self) -> (&Arc<dyn Store>, &Arc<dyn Clock>) {
        (&self.engine.store, &self.engine.clock)
    }

    /// What became of a call: for a caller whose request timed out.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn outcome(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.engine.way.get(id).await
    }

    /// Deletes a record that was seen at fence `seen`, unless it runs or has moved on. The next call with its key runs.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn forget(&self, id: &RecordId, seen: Fence) -> Result<Settled, StoreError> {
        self.engine.store.forget(id, seen).await
    }

    /// Refuses new calls and waits until those under way are settled, or `limit` is over. What is left then keeps its
    /// lease and lapses.
    pub async fn drain(&self, limit: Duration) -> Drained {
        self.engine.tracker.close();
        tokio::select! {
            () = self.engine.tracker.empty() => Drained::Everything,
            () = self.engine.clock.sleep(limit) => Drained::Left(self.engine.tracker.inside()),
        }
    }

    /// How many calls are under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.engine.tracker.inside()
    }
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every call is settled.
    Everything,
    /// The limit was over; so many calls were still under way.
    Left(usize),
}
