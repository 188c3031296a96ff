//! The seam to a broker: what an adapter brings, and what it is told.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::RecordId;

use crate::decision::{Action, Broker, Retries};
use crate::message::Message;
use crate::start::{Horizon, StartError, Warning};

/// A broker that a consumer can be started on.
#[async_trait]
pub trait Connect: fmt::Debug + Send {
    /// Which one it is.
    fn broker(&self) -> Broker;

    /// Connects, and checks everything that would lose or stick a message later.
    ///
    /// # Errors
    /// If it can't be reached, or a check fails; above all if there is no dead letter.
    async fn connect(self: Box<Self>, plan: &Plan) -> Result<Connected, StartError>;
}

#[async_trait]
impl Connect for Box<dyn Connect> {
    fn broker(&self) -> Broker {
        (**self).broker()
    }

    async fn connect(self: Box<Self>, plan: &Plan) -> Result<Connected, StartError> {
        (*self).connect(plan).await
    }
}

/// What a consumer wants from its broker.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The consumer group.
    pub group: String,
    /// The handler.
    pub handler: String,
    /// How many messages are handled at the same time.
    pub at_once: u16,
    /// How many of them may come from the same partition: more than one only in batches.
    pub batch: u16,
    /// The longest that a handler runs.
    pub max_run: Duration,
    /// When what failed is tried again.
    pub retries: Retries,
}

/// What came of connecting.
pub struct Connected {
    /// Where messages come from.
    pub source: Box<dyn Source>,
    /// How long the broker may still deliver a message again.
    pub horizon: Horizon,
    /// What else was noticed.
    pub warnings: Vec<Warning>,
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connected").field("horizon", &self.horizon).finish_non_exhaustive()
    }
}

/// Messages, one after the other.
#[async_trait]
pub trait Source: Send {
    /// The next message. It never ends: a lost connection is made again, with growing pauses.
    ///
    /// # Cancel safety
    /// Dropped half-way, no message is lost: it comes from the next call, or the broker delivers it again.
    async fn next(&mut self) -> Box<dyn Delivery>;

    /// Takes no more messages, and gives back those that nobody has seen yet.
    async fn stop(&mut self);

    /// Ends the connection, after the last delivery was acted on.
    async fn close(self: Box<Self>);
}

/// One delivery of a message. Dropped without an action it is delivered again.
#[async_trait]
pub trait Delivery: Send + Sync {
    /// The message.
    fn message(&self) -> &Message;

    /// Does with it what was decided. What goes elsewhere is safe there before it is acked here.
    ///
    /// # Errors
    /// If the broker did not confirm it; the message will be delivered again.
    async fn act(self: Box<Self>, action: &Action, note: &Note) -> Result<(), BrokerError>;

    /// Gives it back at once: nobody has begun with it.
    async fn give_back(self: Box<Self>);

    /// How often [`progress`](Self::progress) has to be said while it is being handled.
    fn progress_every(&self) -> Option<Duration> {
        None
    }

    /// Says that it is still being handled.
    async fn progress(&self) {}
}

/// What is known of a message that is passed on, for its headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The consumer group.
    pub group: String,
    /// The handler.
    pub handler: String,
    /// The id of the message, if it has one.
    pub message_id: Option<String>,
    /// Its record, if it has one.
    pub record: Option<RecordId>,
    /// How often its handler has failed by now.
    pub failures: u32,
    /// How often it has been delivered by now.
    pub deliveries: u32,
}

impl Note {
    /// The headers that a dead letter carries: whose it was, why, and how it is found again.
    pub fn headers(&self, reason: &crate::decision::Reason, source: &str) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            ("onlyonce-reason", reason.word().to_owned()),
            ("onlyonce-detail", reason.to_string()),
            ("onlyonce-group", self.group.clone()),
            ("onlyonce-handler", self.handler.clone()),
            ("onlyonce-source", source.to_owned()),
        ];
        headers.extend(self.message_id.clone().map(|id| (crate::identity::MESSAGE_ID_HEADER, id)));
        headers.extend(self.record.map(|record| ("onlyonce-record", record.to_string())));
        headers
    }
}

/// A broker that failed: what was asked of it, and why it did not do it.
#[derive(Debug)]
pub struct BrokerError {
    what: &'static str,
    source: Box<dyn Error + Send + Sync>,
}

impl BrokerError {
    /// A failure to do `what`.
    pub fn new(what: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { what, source: source.into() }
    }

    /// Why it was not done, for a message that says itself what was asked.
    #[cfg(any(feature = "lapin", feature = "nats"))]
    pub(crate) fn cause(&self) -> &(dyn Error + Send + Sync) {
        &*self.source
    }
}

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the broker failed: {}", self.what)
    }
}

impl Error for BrokerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
