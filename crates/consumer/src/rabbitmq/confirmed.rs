//! Publishing with confirms, over channels that carry one message at a time.

use std::sync::Arc;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::adapter::BrokerError;
use crate::patience::in_time;

/// How many messages may be on their way at the same time.
const AT_ONCE: u16 = 32;

/// Channels with confirms. Each has one message on its way and no more: what came back is told apart from what was stored by nothing
/// but the channel, since the client gives a message that came back to whichever confirm it completes next. A channel on which
/// anything was left open, or which the broker has closed, is never used again.
pub(super) struct Confirmed {
    connection: Arc<Connection>,
    places: Semaphore,
    idle: Mutex<Vec<Channel>>,
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
        // Where a server allows few channels, others of this connection need theirs too.
        let places = AT_ONCE.min(connection.configuration().channel_max() / 4).max(1);
        Self { connection, places: Semaphore::new(places.into()), idle: Mutex::default() }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.status().connected()
    }

    /// A channel that nobody else has.
    async fn channel(&self) -> Result<Channel, BrokerError> {
        let idle = {
            let mut idle = self.idle.lock();
            std::iter::from_fn(|| idle.pop()).find(|channel| channel.status().connected())
        };
        if let Some(idle) = idle {
            return Ok(idle);
        }
        let making = async {
            let made = self.connection.create_channel().await?;
            made.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok::<_, lapin::Error>(made)
        };
        in_time("open a channel", making).await
    }

    /// Ends well once the broker has said what became of it.
    ///
    /// # Cancel safety
    /// Dropped half-way, it may be published; its channel ends with it.
    pub(super) async fn publish(
        &self,
        exchange: ShortString,
        key: ShortString,
        payload: &[u8],
        properties: BasicProperties,
    ) -> Result<Routed, BrokerError> {
        // Mandatory: what leads nowhere comes back instead of vanishing.
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let _place = in_time("wait for a channel", self.places.acquire()).await?;
        let channel = self.channel().await?;
        let publishing =
            async { channel.basic_publish(exchange, key, options, payload, properties).await?.await };
        let confirmed = in_time("publish", publishing).await?;
        self.idle.lock().push(channel);
        match confirmed {
            Confirmation::Ack(None) => Ok(Routed::Stored),
            Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_)) => Ok(Routed::Nowhere),
            Confirmation::Nack(None) | Confirmation::NotRequested => {
                Err(BrokerError::new("publish", "it was not confirmed"))
            }
        }
    }
}
