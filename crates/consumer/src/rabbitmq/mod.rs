//! RabbitMQ, by lapin.
//!
//! What is to come back later goes to a delay queue: it holds messages for a fixed time and then returns them to the queue
//! that they came from. The queue itself needs no plugin and no argument. What goes to a delay queue or to the dead letter is
//! confirmed by the broker before the delivery is acked, so a crash between the two duplicates a message and never loses one.

mod confirmed;
mod delay;
mod delivery;
mod leaving;
mod link;
mod publisher;
mod source;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::link::{Link, Target};
use self::source::RabbitSource;
use crate::adapter::{Connect, Connected, Plan};
use crate::decision::Broker;
use crate::start::{Horizon, StartError, Warning};

pub use self::publisher::RabbitPublisher;

/// A queue of a RabbitMQ, and where its poison goes.
///
/// ```
/// use onlyonce_consumer::RabbitMq;
/// let orders = RabbitMq::new("amqp://localhost:5672/%2f", "orders.paid").dead_letter("orders.dead");
/// ```
#[must_use = "it does nothing until a consumer is started on it"]
#[derive(Clone)]
pub struct RabbitMq {
    url: String,
    queue: String,
    dead: Option<Target>,
    declare: bool,
    patience: Duration,
}

impl RabbitMq {
    /// The queue at this URL (`amqp://` or `amqps://`). It must be there, unless [`declare`](Self::declare) is said.
    pub fn new(url: impl Into<String>, queue: impl Into<String>) -> Self {
        // The consumer time-out of RabbitMQ since 3.8.17.
        let patience = Duration::from_secs(30 * 60);
        Self { url: url.into(), queue: queue.into(), dead: None, declare: false, patience }
    }

    /// The queue for messages that can't be handled. It must be there, unless [`declare`](Self::declare) is said.
    pub fn dead_letter(mut self, queue: impl Into<String>) -> Self {
        self.dead = Some(Target { exchange: String::new(), key: queue.into() });
        self
    }

    /// The exchange for messages that can't be handled, and the routing key for it. It must be there and lead to a queue.
    pub fn dead_letter_exchange(mut self, exchange: impl Into<String>, key: impl Into<String>) -> Self {
        self.dead = Some(Target { exchange: exchange.into(), key: key.into() });
        self
    }

    /// Makes the queue and the dead letter queue, durable, if they are not there.
    pub fn declare(mut self) -> Self {
        self.declare = true;
        self
    }

    /// How long the broker waits for an ack (its `consumer_timeout`, 30 min), to be compared with the longest run.
    pub fn consumer_timeout(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

impl fmt::Debug for RabbitMq {
    // The URL may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMq")
            .field("queue", &self.queue)
            .field("dead", &self.dead)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Connect for RabbitMq {
    fn broker(&self) -> Broker {
        Broker::RabbitMq
    }

    async fn connect(self: Box<Self>, plan: &Plan) -> Result<Connected, StartError> {
        let Some(dead) = self.dead else {
            return Err(StartError::DeadLetter(format!(
                "the queue {} has no dead letter; name one with RabbitMq::dead_letter, or poison would be lost",
                self.queue
            )));
        };
        if dead.exchange.is_empty() && dead.key == self.queue {
            return Err(StartError::DeadLetter(format!(
                "the dead letter of {} is the queue itself: poison would go round for ever",
                self.queue
            )));
        }
        let link = Link {
            url: self.url,
            queue: self.queue,
            dead,
            prefetch: plan.at_once,
            tag: tag(plan),
            plain: Arc::default(),
        };
        link.check_names()?;
        let open = link.open().await?;
        link.prepare(&open, self.declare).await?;
        let mut warnings = Vec::new();
        if plan.max_run > self.patience {
            warnings.push(Warning::LongRun { max_run: plan.max_run, patience: self.patience });
        }
        let source = RabbitSource::start(link, open).await?;
        Ok(Connected { source: Box::new(source), horizon: Horizon::Unknown, warnings })
    }
}

/// Shown by the broker beside the queue.
fn tag(plan: &Plan) -> String {
    let tag = format!("onlyonce.{}.{}.{:08x}", plan.group, plan.handler, rand::random::<u32>());
    tag.chars().filter(char::is_ascii_graphic).take(200).collect()
}
