//! Publishing with a stable message id, for the sending side.

use std::fmt;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use tokio::sync::Mutex;

use crate::adapter::BrokerError;
use crate::patience::in_time;

/// Publishes to a RabbitMQ, persistent and confirmed, over a connection that is made again when it is lost. For the relay of
/// an outbox: the topic of an event is its routing key.
pub struct RabbitPublisher {
    url: String,
    exchange: String,
    line: Mutex<Option<(Connection, Channel)>>,
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
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let channel = self.channel().await?;
        let (exchange, key) = (name(&self.exchange)?, name(topic)?);
        let publishing =
            async { channel.basic_publish(exchange, key, options, payload, properties).await?.await };
        let confirmed = in_time("publish", publishing).await?;
        let acked = confirmed.is_ack();
        match confirmed.take_message() {
            None if acked => Ok(()),
            None => Err(BrokerError::new("publish", "it was not confirmed")),
            Some(_) => Err(BrokerError::new("publish", format!("no queue is bound for {topic:?}"))),
        }
    }

    async fn channel(&self) -> Result<Channel, BrokerError> {
        let mut line = self.line.lock().await;
        if let Some((connection, channel)) = &*line
            && connection.status().connected()
            && channel.status().connected()
        {
            return Ok(channel.clone());
        }
        let connecting = async {
            let connection = Connection::connect(&self.url, ConnectionProperties::default()).await?;
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok::<_, lapin::Error>((connection, channel))
        };
        let made = in_time("connect", connecting).await?;
        let channel = made.1.clone();
        *line = Some(made);
        Ok(channel)
    }
}

impl fmt::Debug for RabbitPublisher {
    // The URL may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitPublisher").field("exchange", &self.exchange).finish_non_exhaustive()
    }
}
