//! Publishing with a stable message id, for the sending side.

use async_nats::HeaderMap;
use async_nats::jetstream::{self, Context};
use bytes::Bytes;

use crate::adapter::BrokerError;
use crate::patience::in_time;

/// Publishes to a NATS JetStream, and waits until a stream has it. For the relay of an outbox: the topic of an event is its
/// subject, and its id the header `Nats-Msg-Id`, by which the server drops repetitions within its own window too.
#[derive(Debug, Clone)]
pub struct NatsPublisher(Context);

impl NatsPublisher {
    /// Publishes through this client, which reconnects by itself.
    #[must_use]
    pub fn new(client: async_nats::Client) -> Self {
        Self(jetstream::new(client))
    }

    /// Publishes through a client of its own.
    ///
    /// # Errors
    /// If the server can't be reached.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, BrokerError> {
        in_time("connect", async_nats::connect(url.as_ref())).await.map(Self::new)
    }

    /// Ends well once a stream has the message for good. A subject that no stream takes is an error.
    ///
    /// # Errors
    /// If the server can't be reached or does not take it; it may have it all the same.
    pub async fn publish(
        &self,
        topic: &str,
        message_id: &str,
        headers: impl IntoIterator<Item = (&str, &str)>,
        payload: &[u8],
    ) -> Result<(), BrokerError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(name, value);
        }
        map.insert(async_nats::header::NATS_MESSAGE_ID, message_id);
        let sent = self.0.publish_with_headers(topic.to_owned(), map, Bytes::copy_from_slice(payload));
        in_time("publish", async { sent.await?.await }).await.map(drop)
    }
}
