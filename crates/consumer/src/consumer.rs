//! Setting up a consumer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{
    Classify, Hash16, Idempotency, InputError, Mode, OnLapse, Operation, Recovery, Scope, Settings,
};

use crate::adapter::{Connect, Plan};
use crate::decision::Retries;
use crate::handler::{Ask, Batch, Handler, Job};
use crate::identity::Identify;
use crate::message::Message;
use crate::processor::{Compare, Processor};
use crate::service::{Consuming, Service};
use crate::start::{Horizon, StartError, Warning, window};

/// A handler of messages that has exactly one effect for each, however often it is delivered.
///
/// A message is known by (consumer group, handler, message id). With an engine on a store, its effect happens at most once,
/// and where a crash leaves doubt the message is parked for a person; with an engine in the business transaction
/// (`onlyonce-sql`) it happens exactly once. A message is acked after that is on record, never before.
///
/// ```
/// use onlyonce_consumer::{Consumer, Job};
/// use onlyonce_core::{Idempotency, MemoryStore};
/// # use std::convert::Infallible;
/// let once = Idempotency::new(MemoryStore::new());
/// let consumer = Consumer::new(once, "stock", "decrement", |job: Job| async move {
///     println!("one less of {:?}", job.message().header("product"));
///     Ok::<(), Infallible>(())
/// })
/// .message_id(|message| message.header("event-id").map(str::to_owned))
/// .concurrency(8);
/// // consumer.start(RabbitMq::new("amqp://localhost", "orders.paid").dead_letter("orders.dead")).await?
/// # drop(consumer);
/// ```
#[must_use = "a consumer does nothing until it is started"]
pub struct Consumer {
    once: Idempotency,
    group: String,
    name: String,
    handler: Handler,
    identify: Identify,
    compare: Compare,
    ask: Option<Ask>,
    concurrency: u16,
    retries: Retries,
    horizon: Option<Duration>,
    strict: bool,
}

impl Consumer {
    /// A consumer of this group whose handler has this name; both are part of what its records are known by, so keep them.
    ///
    /// The handler's errors say what they mean ([`Classify`]): kept is a business refusal and ends the message, released is
    /// a failure and the message is tried again, unknown parks it.
    pub fn new<F, E>(
        once: Idempotency,
        group: impl Into<String>,
        name: impl Into<String>,
        handler: impl Fn(Job) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Classify + fmt::Debug,
    {
        Self::with(once, group.into(), name.into(), Handler::one(handler))
    }

    /// As [`new`](Self::new), for a handler that takes several messages at once and gives a result for each, in their order.
    ///
    /// Each message still has a record of its own: of a batch that is cut short by a crash, only those that were begun are
    /// in doubt. For engines with leases: in a transaction each message has its own, and is handled alone, in a batch of one.
    /// (Several transactions that wait for one handler would hold their connections and locks against each other.)
    pub fn batched<F, E>(
        once: Idempotency,
        group: impl Into<String>,
        name: impl Into<String>,
        batch: Batch,
        handler: impl Fn(Vec<Job>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Vec<Result<(), E>>> + Send + 'static,
        E: Classify + fmt::Debug,
    {
        Self::with(once, group.into(), name.into(), Handler::many(batch, handler))
    }

    fn with(once: Idempotency, group: String, name: String, handler: Handler) -> Self {
        Self {
            once,
            group,
            name,
            handler,
            identify: Identify::default(),
            compare: Compare::default(),
            ask: None,
            concurrency: 16,
            retries: Retries::default(),
            horizon: None,
            strict: false,
        }
    }

    /// Finds the id of a message in the message, before the places where brokers and senders usually put it.
    pub fn message_id(
        mut self,
        extract: impl Fn(&Message) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.identify = Identify::by(Arc::new(extract));
        self
    }

    /// What is compared when an id comes back (the payload too).
    pub fn compare(mut self, compare: Compare) -> Self {
        self.compare = compare;
        self
    }

    /// For [`OnLapse::Ask`]: finds out whether a message whose handler died had its effect. "Not done" must mean that it can
    /// no longer happen. A hook that has said nothing after `Settings::max_run` is dropped, and nobody knows.
    pub fn recover<F>(mut self, hook: impl Fn(Job) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Recovery<()>> + Send + 'static,
    {
        self.ask = Some(Arc::new(move |job| Box::pin(hook(job))));
        self
    }

    /// How many handlers run at the same time (16).
    pub fn concurrency(mut self, handlers: u16) -> Self {
        self.concurrency = handlers;
        self
    }

    /// When what failed is tried again, and when it is given up.
    pub fn retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// The longest time after which a message may still come back: from the broker, from a replay, from a sender that tries
    /// again. Records have to be kept for at least as long; a warning says if they are not.
    pub fn replay_horizon(mut self, horizon: Duration) -> Self {
        self.horizon = Some(horizon);
        self
    }

    /// Does not start where there is something to warn about.
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Checks, connects, and handles messages from now on, in the background.
    ///
    /// # Errors
    /// If something is missing that a message would be lost or stuck without, above all the dead letter; what it is and
    /// what to do is in the message.
    pub async fn start(self, broker: impl Connect + 'static) -> Result<Consuming, StartError> {
        self.start_boxed(Box::new(broker)).await
    }

    async fn start_boxed(self, broker: Box<dyn Connect>) -> Result<Consuming, StartError> {
        let (kind, batch) = (broker.broker(), self.batch());
        let settings = self.settings(batch)?;
        let (retain, max_run) = (settings.retain, settings.max_run);
        let plan = Plan {
            group: self.group.clone(),
            handler: self.name.clone(),
            at_once: self.concurrency.saturating_mul(batch.max),
            batch: batch.max,
            max_run,
            retries: self.retries,
        };
        let scope = Scope::new(&self.group)?;
        let processor = Processor {
            once: self.once.with_settings(settings)?,
            scope_hash: Hash16::of_scope(&scope),
            scope,
            operation: Operation::new(&self.name)?,
            route: format!("consume {}", self.name).into(),
            group: self.group,
            name: self.name,
            identify: self.identify,
            compare: self.compare,
            ask: self.ask,
            handler: self.handler,
        };
        let connected = broker.connect(&plan).await?;
        let horizon = self.horizon.map_or(connected.horizon, Horizon::For);
        let mut warnings = connected.warnings;
        warnings.extend(window(retain, horizon));
        if self.strict
            && let Some(warning) = warnings.first()
        {
            let warning = warning.clone();
            connected.source.close().await;
            return Err(StartError::Strict(warning));
        }
        for warning in &warnings {
            tracing::warn!(group = plan.group, handler = plan.handler, "{warning}");
        }
        let service =
            Service { processor, broker: kind, retries: self.retries, concurrency: self.concurrency, batch };
        Ok(service.start(connected.source, warnings))
    }

    /// How many messages are claimed before the handler runs.
    fn batch(&self) -> Batch {
        let batch = self.handler.batch();
        if self.once.has_leases() { batch } else { Batch { max: batch.max.min(1), ..batch } }
    }

    /// The engine's settings, fit for messages.
    fn settings(&self, batch: Batch) -> Result<Settings, InputError> {
        if self.concurrency == 0 || batch.max == 0 {
            return Err(InputError::new("concurrency or the size of a batch is 0: nothing would be handled"));
        }
        if self.concurrency.checked_mul(batch.max).is_none() {
            return Err(InputError::new("concurrency times the size of a batch is above 65,535"));
        }
        if self.retries.limit == 0 {
            return Err(InputError::new("the limit of retries is 0; 1 means that nothing is tried again"));
        }
        let settings = Settings::clone(self.once.settings());
        if matches!(settings.on_lapse, OnLapse::Ask { .. }) && self.ask.is_none() {
            return Err(InputError::new("OnLapse::Ask needs a hook to ask: see Consumer::recover"));
        }
        // With Reject a message that is still being handled elsewhere would pass for done, and be acked too early. And no message of
        // a batch waits for a call that runs: it might be its neighbour, which is handled only when all are claimed.
        let wait = if batch.max > 1 { Duration::ZERO } else { settings.wait };
        Ok(Settings { mode: Mode::Replay, wait, ..settings })
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("group", &self.group)
            .field("name", &self.name)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}

/// What was noticed at the start, for who wants to look at it.
pub(crate) type Warnings = Vec<Warning>;
