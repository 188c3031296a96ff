//! Publishing with a stable message id, for the sending side.

use std::fmt;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};

use crate::adapter::BrokerError;
use crate::identity::{KEY_HEADER, MESSAGE_ID_HEADER};

/// The longest that the brokers may take to have a message.
const PATIENCE: Duration = Duration::from_secs(20);

/// Publishes to a Kafka, and waits until all replicas in sync have it. For the relay of an outbox: the id of an event is the header
/// `onlyonce-message-id`, and the key of the record is that of the event, so that events of one key stay in one partition; without
/// one it is the id.
#[derive(Clone)]
pub struct KafkaPublisher(FutureProducer);

impl KafkaPublisher {
    /// Publishes to these brokers, separated by commas.
    ///
    /// # Errors
    /// If they can't be used.
    pub fn new(brokers: impl Into<String>) -> Result<Self, BrokerError> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers.into());
        Self::with_config(config)
    }

    /// The same, with settings of your own, such as those for TLS and SASL.
    ///
    /// # Errors
    /// If they can't be used.
    pub fn with_config(mut config: ClientConfig) -> Result<Self, BrokerError> {
        config.set("acks", "all").set("enable.idempotence", "true").set("message.timeout.ms", "15000");
        config.create().map(Self).map_err(|error| BrokerError::new("connect", error))
    }

    /// Ends well once the brokers have the message for good.
    ///
    /// # Errors
    /// If they can't be reached or do not take it; they may have it all the same.
    pub async fn publish(
        &self,
        topic: &str,
        message_id: &str,
        headers: impl IntoIterator<Item = (&str, &str)>,
        payload: &[u8],
    ) -> Result<(), BrokerError> {
        let mut all = OwnedHeaders::new();
        let mut order = message_id;
        for (key, value) in headers {
            // The client panics at it.
            if key.contains('\0') {
                return Err(BrokerError::new("publish", format!("the header {key:?} has a NUL in its name")));
            }
            if key == KEY_HEADER {
                order = value;
            }
            all = all.insert(Header { key, value: Some(value) });
        }
        all = all.insert(Header { key: MESSAGE_ID_HEADER, value: Some(message_id) });
        let record = FutureRecord::to(topic).key(order).payload(payload).headers(all);
        self.0.send(record, PATIENCE).await.map(drop).map_err(|(error, _)| BrokerError::new("publish", error))
    }
}

impl fmt::Debug for KafkaPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KafkaPublisher")
    }
}
