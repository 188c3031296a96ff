//! Publishing with a stable message id, for the sending side.

use std::fmt;
use std::sync::Arc;

use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Connection, ConnectionProperties};
use tokio::sync::Mutex;

use super::confirmed::{Confirmed, Routed};
use crate::adapter::BrokerError;
use crate::patience::in_time;

/// Publishes to a RabbitMQ, persistent and confirmed, over a connection that is made again when it is lost. For the relay of
/// an outbox: the topic of an event is its routing key.
pub struct RabbitPublisher {
    url: String,
    exchange: String,
    line: Mutex<Option<Arc<Confirmed>>>,
}

impl RabbitPublisher {
    /// Publishes to this exchange; with an empty name, routing keys are the names of queues. Connects at the first message.
    #[must_use]
    pub fn new(url: impl Into<String>, exchange: impl Into<String>) -> Self {
        Self { url: url.into(), exchange: exchange.into(), line: Mutex::new(None) }
    }

    /// Ends well once the broker has the message for good. A message that leads to no queue is an error.
    ///
    /// # Errors
    /// If the broker can't be reached or does not take it; it may have it all the same.
    pub async fn publish(
        &self,
        topic: &str,
        message_id: &str,
        headers: impl IntoIterator<Item = (&str, &str)>,
        payload: &[u8],
    ) -> Result<(), BrokerError> {
        let name = |text: &str| ShortString::try_new(text).map_err(|why| BrokerError::new("publish", why));
        let mut table = FieldTable::default();
        for (key, value) in headers {
            table.insert(name(key)?, AMQPValue::LongString(value.into()));
        }
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_message_id(name(message_id)?)
            .with_headers(table);
        let (exchange, key) = (name(&self.exchange)?, name(topic)?);
        match self.line().await?.publish(exchange, key, payload, properties).await? {
            Routed::Stored => Ok(()),
            Routed::Nowhere => Err(BrokerError::new("publish", format!("no queue is bound for {topic:?}"))),
        }
    }

    async fn line(&self) -> Result<Arc<Confirmed>, BrokerError> {
        let mut line = self.line.lock().await;
        if let Some(open) = line.as_ref().filter(|open| open.is_connected()) {
            return Ok(Arc::clone(open));
        }
        let connecting = Connection::connect(&self.url, ConnectionProperties::default());
        let made = Arc::new(Confirmed::on(Arc::new(in_time("connect", connecting).await?)));
        *line = Some(Arc::clone(&made));
        Ok(made)
    }
}

impl fmt::Debug for RabbitPublisher {
    // The URL may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitPublisher").field("exchange", &self.exchange).finish_non_exhaustive()
    }
}
