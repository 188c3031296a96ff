//! NATS JetStream, by async-nats.
//!
//! A durable pull consumer with explicit acks. What is to come back is told when; what can't be handled is published on the
//! dead letter's subject, and terminated once a stream has it.

mod check;
mod delivery;
mod failures;
mod publisher;
mod source;

use std::fmt;
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use async_trait::async_trait;

use self::source::NatsSource;
use crate::adapter::{Connect, Connected, Plan};
use crate::decision::Broker;
use crate::patience::in_time;
use crate::start::{Horizon, StartError};

pub use self::publisher::NatsPublisher;

/// The longest that the server may be told to wait for an ack: what a dead consumer held comes back after it.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// A stream of a NATS JetStream, and where its poison goes.
///
/// ```
/// use onlyonce_consumer::Nats;
/// let orders = Nats::new("nats://localhost:4222", "ORDERS").subject("orders.paid").dead_letter("dead.orders");
/// ```
#[must_use = "it does nothing until a consumer is started on it"]
#[derive(Clone)]
pub struct Nats {
    reach: Reach,
    stream: String,
    subject: String,
    durable: Option<String>,
    dead: Option<String>,
    declare: bool,
    ack_wait: Duration,
}

#[derive(Clone)]
enum Reach {
    Url(String),
    Client(async_nats::Client),
}

impl Nats {
    /// The stream at this URL. It must be there, unless [`declare`](Self::declare) is said.
    pub fn new(url: impl Into<String>, stream: impl Into<String>) -> Self {
        Self::reached_by(Reach::Url(url.into()), stream.into())
    }

    /// The same, through a client that is there already.
    pub fn with_client(client: async_nats::Client, stream: impl Into<String>) -> Self {
        Self::reached_by(Reach::Client(client), stream.into())
    }

    fn reached_by(reach: Reach, stream: String) -> Self {
        let ack_wait = Duration::from_secs(30);
        Self { reach, stream, subject: String::new(), durable: None, dead: None, declare: false, ack_wait }
    }

    /// Only messages on this subject, which may have wildcards (all of the stream).
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = subject.into();
        self
    }

    /// The name of the durable consumer (`group-handler`). All processes of a group share it; it is made if it is not there.
    pub fn durable(mut self, name: impl Into<String>) -> Self {
        self.durable = Some(name.into());
        self
    }

    /// The subject for messages that can't be handled. A stream must take it, unless [`declare`](Self::declare) is said.
    pub fn dead_letter(mut self, subject: impl Into<String>) -> Self {
        self.dead = Some(subject.into());
        self
    }

    /// Makes the stream, and one for the dead letter (the stream's name and `-dead`), if they are not there.
    pub fn declare(mut self) -> Self {
        self.declare = true;
        self
    }

    /// How long the server waits for an ack before it delivers again, where the durable consumer is made by this one (30 s; up to a
    /// day). Handlers may take longer: progress is reported at a third of it.
    pub fn ack_wait(mut self, wait: Duration) -> Self {
        self.ack_wait = wait.min(LONGEST_WAIT);
        self
    }
}

impl fmt::Debug for Nats {
    // The URL may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats").field("stream", &self.stream).field("dead", &self.dead).finish_non_exhaustive()
    }
}

#[async_trait]
impl Connect for Nats {
    fn broker(&self) -> Broker {
        Broker::Nats
    }

    async fn connect(self: Box<Self>, plan: &Plan) -> Result<Connected, StartError> {
        let Some(dead) = &self.dead else {
            return Err(StartError::DeadLetter(format!(
                "the stream {} has no dead letter; name a subject with Nats::dead_letter, or poison would be lost",
                self.stream
            )));
        };
        let client = match &self.reach {
            Reach::Client(client) => client.clone(),
            Reach::Url(url) => in_time("connect", async_nats::connect(url)).await?,
        };
        let context = jetstream::new(client);
        let stream = self.prepare(&context, dead).await?;
        let horizon = match stream.cached_info().config.max_age {
            Duration::ZERO => Horizon::Ever,
            age => Horizon::For(age),
        };
        let dead = dead.clone();
        let source = NatsSource::start(*self, plan.clone(), context, dead, &stream).await?;
        Ok(Connected { source: Box::new(source), horizon, warnings: Vec::new() })
    }
}

/// What everything here is done with.
type Jet = Context;
