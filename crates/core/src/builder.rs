//! Setting up an engine, and what it does by itself from then on.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Moment, SystemClock};
use crate::drain::Tracker;
use crate::engine::{Engine, Idempotency, Way};
use crate::error::InputError;
use crate::keeper::{BoxFuture, Chore, Keeper, Ticket};
use crate::lease_runner::LeaseRunner;
use crate::runner::Runner;
use crate::settings::Settings;
use crate::store::Store;
use crate::tracked::Tracked;

/// Sets up an engine.
#[derive(Debug)]
pub struct Builder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    sweep_every: Duration,
    runner: Option<Arc<dyn Runner>>,
}

impl Builder {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            clock: Arc::new(SystemClock),
            settings: Settings::default(),
            sweep_every: Duration::from_secs(60),
            runner: None,
        }
    }

    /// How calls are treated unless a handle says otherwise.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Takes time from `clock`.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// How often expired records are removed (60 s).
    #[must_use]
    pub fn sweep_every(mut self, period: Duration) -> Self {
        self.sweep_every = period;
        self
    }

    /// Starts and ends attempts with this instead of leases; the store is still what is looked at, repaired and swept.
    #[must_use]
    pub fn runner(mut self, runner: Arc<dyn Runner>) -> Self {
        self.runner = Some(runner);
        self
    }

    /// The engine.
    ///
    /// # Errors
    /// If the settings make no sense.
    pub fn build(self) -> Result<Idempotency, InputError> {
        self.settings.validate()?;
        if self.sweep_every < Duration::from_millis(10) {
            return Err(InputError::new("sweep_every is below 10 ms: the engine would do nothing but sweep"));
        }
        Ok(self.assemble())
    }

    pub(crate) fn assemble(self) -> Idempotency {
        let tracker = Tracker::default();
        let sweeper = Sweeper {
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            period: self.sweep_every,
            ticket: Ticket::of_period(self.sweep_every),
        };
        let first_sweep = self.clock.now().plus(self.sweep_every);
        let way = match self.runner {
            None => {
                let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
                let runner = LeaseRunner::new(store, clock, tracker.clone());
                runner.keeper().schedule(Arc::new(sweeper), first_sweep);
                Way::Leases(runner)
            }
            Some(inner) => {
                let keeper = Keeper::new(Arc::clone(&self.clock));
                keeper.schedule(Arc::new(sweeper), first_sweep);
                Way::Other(Tracked { inner, tracker: tracker.clone(), keeper })
            }
        };
        let engine = Engine { way, store: self.store, clock: self.clock, tracker };
        Idempotency::assemble(engine, self.settings)
    }
}

/// Removes expired records now and then.
#[derive(Debug)]
struct Sweeper {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    period: Duration,
    ticket: Ticket,
}

impl Chore for Sweeper {
    fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    fn run(self: Arc<Self>) -> BoxFuture<Option<Moment>> {
        const BATCH: u32 = 1000;
        Box::pin(async move {
            loop {
                match self.store.sweep(BATCH).await {
                    Ok(swept) if swept >= BATCH => tokio::task::yield_now().await,
                    Ok(_) => break,
                    Err(error) => {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "sweeping failed, will retry"
                        );
                        break;
                    }
                }
            }
            Some(self.clock.now().plus(self.period))
        })
    }
}
