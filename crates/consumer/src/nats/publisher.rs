//! Publishing with a stable message id, for the sending side.

use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::stream::RawMessageErrorKind;
use async_nats::jetstream::{self, Context};
use async_nats::{HeaderMap, HeaderName, HeaderValue, Subject};
use bytes::Bytes;

use crate::adapter::BrokerError;
use crate::identity::fitting;
use crate::patience::in_time;

/// Publishes to a NATS JetStream, and waits until a stream has it. For the relay of an outbox: the topic of an event is its
/// subject, and the header `Nats-Msg-Id` is its topic and its id, by which the server drops repetitions within its own window too.
/// (By the id alone it would drop an event of another topic in the same stream.)
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

    /// Ends well once a stream has the message for good. A subject that no stream takes is an error, and so is another message that
    /// the stream has under this id.
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
        let refused = |why| BrokerError::new("publish", why);
        let subject = Subject::validated(topic).map_err(|why| refused(format!("{topic:?}: {why}")))?;
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            // What can't be sent is an error here, and a panic within the client.
            let header: HeaderName =
                name.parse().map_err(|why| refused(format!("the header {name:?}: {why}")))?;
            let value: HeaderValue =
                value.parse().map_err(|why| refused(format!("the header {name:?}: {why}")))?;
            map.insert(header, value);
        }
        let id = fitting(format!("{topic} {message_id}"));
        let id: HeaderValue =
            id.parse().map_err(|why| refused(format!("the message id {message_id:?}: {why}")))?;
        map.insert(async_nats::header::NATS_MESSAGE_ID, id);
        let sent = self.0.publish_with_headers(subject, map, Bytes::copy_from_slice(payload));
        let ack = in_time("publish", async { sent.await?.await }).await?;
        if ack.duplicate { self.is_stored(&ack, payload).await } else { Ok(()) }
    }

    /// The server did not store it, because it has one under this id. Most often it is this one, from an attempt whose answer was
    /// lost; another one would be a message that is lost now.
    async fn is_stored(&self, ack: &PublishAck, payload: &[u8]) -> Result<(), BrokerError> {
        let what = "look for what is stored under the same id";
        let stream = in_time(what, self.0.get_stream(&ack.stream)).await?;
        let find = async {
            match stream.get_raw_message(ack.sequence).await {
                // A consumer has had it and the stream let it go: the id carries the topic, so it was this one.
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
                found => found.map(Some),
            }
        };
        match in_time(what, find).await? {
            Some(stored) if stored.payload != payload => {}
            _ => return Ok(()),
        }
        let why = format!("the stream {} has another message under this id, at {}", ack.stream, ack.sequence);
        Err(BrokerError::new("publish", why))
    }
}
