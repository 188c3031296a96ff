//! Publishing with confirms, over a channel that is made again when the broker has closed it.

use std::sync::Arc;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Connection};
use tokio::sync::Mutex;

use crate::adapter::BrokerError;
use crate::patience::in_time;

/// A channel with confirms. An exchange that is not there, or a queue that is not what was thought, makes the broker close it; the
/// next message has a new one for as long as the connection lives.
pub(super) struct Confirmed {
    connection: Arc<Connection>,
    channel: Mutex<Option<Channel>>,
}

/// What became of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Routed {
    /// The broker has it in a queue.
    Stored,
    /// It led to no queue, and came back.
    Nowhere,
}

impl Confirmed {
    pub(super) fn on(connection: Arc<Connection>) -> Self {
        Self { connection, channel: Mutex::new(None) }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.status().connected()
    }

    async fn channel(&self) -> Result<Channel, BrokerError> {
        let mut channel = self.channel.lock().await;
        if let Some(open) = channel.as_ref().filter(|open| open.status().connected()) {
            return Ok(open.clone());
        }
        let making = async {
            let made = self.connection.create_channel().await?;
            made.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok::<_, lapin::Error>(made)
        };
        let made = in_time("open a channel", making).await?;
        *channel = Some(made.clone());
        Ok(made)
    }

    /// Ends well once the broker has said what became of it.
    pub(super) async fn publish(
        &self,
        exchange: ShortString,
        key: ShortString,
        payload: &[u8],
        properties: BasicProperties,
    ) -> Result<Routed, BrokerError> {
        // Mandatory: what leads nowhere comes back instead of vanishing.
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let channel = self.channel().await?;
        let publishing =
            async { channel.basic_publish(exchange, key, options, payload, properties).await?.await };
        let confirmed = in_time("publish", publishing).await?;
        let unconfirmed = !confirmed.is_ack();
        match confirmed.take_message() {
            None if unconfirmed => Err(BrokerError::new("publish", "it was not confirmed")),
            None => Ok(Routed::Stored),
            Some(_) => Ok(Routed::Nowhere),
        }
    }
}
