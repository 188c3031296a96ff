//! What is to be published.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use bytes::Bytes;

use crate::dialect::{Dialect, Meaning};

/// The header that carries the key of an event. `KafkaPublisher` takes it for the key of the record, so that events of one key
/// stay in one partition.
pub const KEY_HEADER: &str = "onlyonce-key";

/// An event that will be published under a stable message id.
///
/// ```
/// use onlyonce_sql::outbox::Event;
/// let paid = Event::new("orders.paid", r#"{"order":42}"#).id("order-42-paid").key("order-42").header("tenant", "7");
/// assert_eq!(paid.message_id(), "order-42-paid");
/// assert_eq!(paid.order_key(), Some("order-42"));
/// assert_ne!(Event::new("t", "").message_id(), Event::new("t", "").message_id());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    pub(super) id: String,
    pub(super) topic: String,
    pub(super) key: Option<String>,
    pub(super) payload: Bytes,
    pub(super) headers: BTreeMap<String, String>,
}

impl Event {
    /// An event for this queue, subject or topic, with an id of its own.
    #[must_use]
    pub fn new(topic: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        let id = format!("{:032x}", rand::random::<u128>());
        Self { id, topic: topic.into(), key: None, payload: payload.into(), headers: BTreeMap::new() }
    }

    /// With an id that the business knows, of 1 to 255 bytes. It names one event of its topic.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// With a key, of 1 to 255 bytes: events of one key are published in the order in which they were written, each after the one
    /// before it is published. Events without a key have no order.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// The id under which it is published, however often that is.
    #[must_use]
    pub fn message_id(&self) -> &str {
        &self.id
    }

    /// Where it goes.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// What it says.
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Within which order it is published, if within any.
    #[must_use]
    pub fn order_key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Its headers; a key is among them, as [`KEY_HEADER`].
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        own.chain(self.order_key().map(|key| (KEY_HEADER, key)))
    }
}

impl fmt::Debug for Event {
    // What an event says may be personal; it does not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("id", &self.id)
            .field("topic", &self.topic)
            .field("bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// An outbox that could not be used.
#[derive(Debug)]
pub struct OutboxError {
    says: String,
    source: Option<sqlx::Error>,
}

impl OutboxError {
    pub(super) fn input(says: impl Into<String>) -> Self {
        Self { says: says.into(), source: None }
    }

    pub(super) fn failed<DB: Dialect>(what: &'static str) -> impl Fn(sqlx::Error) -> Self {
        move |source| {
            let hint = match DB::meaning(&source) {
                Meaning::NoTable => "; the table is missing: call Outbox::migrate",
                _ => "",
            };
            Self { says: format!("the outbox failed to {what}{hint}"), source: Some(source) }
        }
    }
}

impl fmt::Display for OutboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.says)
    }
}

impl Error for OutboxError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
