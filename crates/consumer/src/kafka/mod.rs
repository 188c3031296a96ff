//! Kafka, by rdkafka.
//!
//! The messages of a partition are handled in their order, one after the other; partitions side by side. An offset is stored
//! once everything before it is done. A message that has to wait holds up its partition, and only that; one that keeps
//! failing moves to the retry topic, if there is one.

mod check;
mod delivery;
mod lanes;
mod load;
mod publisher;
mod source;

use std::fmt;

use async_trait::async_trait;
use rdkafka::ClientConfig;

use self::source::KafkaSource;
use crate::adapter::{BrokerError, Connect, Connected, Plan};
use crate::decision::Broker;
use crate::start::StartError;

pub use self::publisher::KafkaPublisher;

/// A topic of a Kafka, and where its poison goes.
///
/// The consumer group of Kafka is the group of the [`Consumer`](crate::Consumer). Messages without an id are named by their position
/// and their time.
///
/// ```
/// use onlyonce_consumer::Kafka;
/// let orders = Kafka::new("localhost:9092", "orders.paid").retry_topic("orders.retry").dead_letter("orders.dead");
/// ```
#[must_use = "it does nothing until a consumer is started on it"]
#[derive(Clone)]
pub struct Kafka {
    config: ClientConfig,
    topic: String,
    retry: Option<String>,
    dead: Option<String>,
}

impl Kafka {
    /// The topic at these brokers, separated by commas. It must be there.
    pub fn new(brokers: impl Into<String>, topic: impl Into<String>) -> Self {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers.into());
        // From the beginning if the group is new: nothing that was sent before its first start is left out.
        config.set("auto.offset.reset", "earliest");
        config.set("auto.commit.interval.ms", "1000");
        Self { config, topic: topic.into(), retry: None, dead: None }
    }

    /// The topic for messages that can't be handled. It must be there.
    pub fn dead_letter(mut self, topic: impl Into<String>) -> Self {
        self.dead = Some(topic.into());
        self
    }

    /// The topic for messages that failed too often to hold up their partition. It must be there, and is consumed too.
    pub fn retry_topic(mut self, topic: impl Into<String>) -> Self {
        self.retry = Some(topic.into());
        self
    }

    /// Any other setting of librdkafka, such as those for TLS and SASL. How offsets are stored is not left to choose.
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.set(name, value);
        self
    }

    /// The settings that the promise rests on, over all others.
    fn settings(&self, plan: &Plan) -> ClientConfig {
        let mut config = self.config.clone();
        config.set("group.id", &plan.group);
        config.set("enable.auto.commit", "true");
        config.set("enable.auto.offset.store", "false");
        config
    }

    fn publishing(&self) -> ClientConfig {
        let mut config = self.config.clone();
        for name in ["auto.offset.reset", "auto.commit.interval.ms", "session.timeout.ms"] {
            config.remove(name);
        }
        config.set("acks", "all");
        config.set("enable.idempotence", "true");
        config.set("message.timeout.ms", "15000");
        config
    }
}

impl fmt::Debug for Kafka {
    // The settings may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka").field("topic", &self.topic).field("dead", &self.dead).finish_non_exhaustive()
    }
}

#[async_trait]
impl Connect for Kafka {
    fn broker(&self) -> Broker {
        Broker::Kafka
    }

    async fn connect(self: Box<Self>, plan: &Plan) -> Result<Connected, StartError> {
        let Some(dead) = self.dead.clone() else {
            return Err(StartError::DeadLetter(format!(
                "the topic {} has no dead letter; name one with Kafka::dead_letter, or poison would be lost",
                self.topic
            )));
        };
        if dead == self.topic || self.retry.as_ref() == Some(&dead) {
            return Err(StartError::DeadLetter(format!(
                "the dead letter {dead} is among the topics that are consumed: poison would go round for ever"
            )));
        }
        self.check(&dead, plan).await?;
        let horizon = self.retention().await;
        let source =
            KafkaSource::start(&self, dead, plan).map_err(|error| BrokerError::new("subscribe", error))?;
        Ok(Connected { source: Box::new(source), horizon, warnings: Vec::new() })
    }
}
