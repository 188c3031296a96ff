//! A message, as every broker has it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// A message as it was delivered, whatever the broker. Cheap to clone.
///
/// ```
/// use onlyonce_consumer::Message;
/// let message = Message::new("orders.paid", "{\"order\":42}").with_id("evt-1").with_header("tenant", "7");
/// assert_eq!(message.header("Tenant"), Some("7"));
/// assert_eq!(message.payload(), "{\"order\":42}".as_bytes());
/// ```
#[derive(Clone)]
pub struct Message(Arc<Parts>);

#[derive(Clone)]
struct Parts {
    source: Box<str>,
    payload: Bytes,
    headers: Vec<(Box<str>, Box<str>)>,
    id: Option<Box<str>>,
    content_type: Option<Box<str>>,
    position: Option<Box<str>>,
    garbled: bool,
    history: History,
}

/// What has happened to a message before this delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct History {
    /// How often its handler failed, as far as the broker can tell.
    pub failures: u32,
    /// How often it was delivered before, for whatever reason.
    pub deliveries: u32,
}

impl Message {
    /// A message from this queue, subject or topic.
    #[must_use]
    pub fn new(source: impl Into<Box<str>>, payload: impl Into<Bytes>) -> Self {
        Self(Arc::new(Parts {
            source: source.into(),
            payload: payload.into(),
            headers: Vec::new(),
            id: None,
            content_type: None,
            position: None,
            garbled: false,
            history: History::default(),
        }))
    }

    /// With the id that the broker carries beside the headers, as the property `message_id` of RabbitMQ.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<Box<str>>) -> Self {
        self.parts().id = Some(id.into());
        self
    }

    /// With one more header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        self.parts().headers.push((name.into(), value.into()));
        self
    }

    /// With the type of its payload.
    #[must_use]
    pub fn with_content_type(mut self, content_type: impl Into<Box<str>>) -> Self {
        self.parts().content_type = Some(content_type.into());
        self
    }

    /// With its place in a stream, which names it for as long as the stream lives.
    #[must_use]
    pub fn with_position(mut self, position: impl Into<Box<str>>) -> Self {
        self.parts().position = Some(position.into());
        self
    }

    /// With what has happened to it before.
    #[must_use]
    pub fn with_history(mut self, history: History) -> Self {
        self.parts().history = history;
        self
    }

    /// With headers that can't be read, and were left out.
    #[cfg(feature = "kafka")]
    pub(crate) fn garbled(mut self) -> Self {
        self.parts().garbled = true;
        self
    }

    pub(crate) fn is_garbled(&self) -> bool {
        self.0.garbled
    }

    fn parts(&mut self) -> &mut Parts {
        Arc::make_mut(&mut self.0)
    }

    /// The queue, subject or topic that it came from.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// What it says.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.0.payload
    }

    /// The payload, shared.
    #[must_use]
    pub fn payload_bytes(&self) -> Bytes {
        self.0.payload.clone()
    }

    /// The payload, read as JSON.
    ///
    /// # Errors
    /// If it is not what is expected. Such a message will never be: an error of the class `Keep` ends it.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0.payload)
    }

    /// The first header of this name; upper and lower case do not matter.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.0.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }

    /// All headers, as they came; values that are not text are left out.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.headers.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The id that the broker carries beside the headers.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.0.id.as_deref()
    }

    /// The type of its payload.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.0.content_type.as_deref().or_else(|| self.header("content-type"))
    }

    /// Its place in a stream; RabbitMQ has none.
    #[must_use]
    pub fn position(&self) -> Option<&str> {
        self.0.position.as_deref()
    }

    /// What has happened to it before.
    #[must_use]
    pub fn history(&self) -> History {
        self.0.history
    }
}

impl fmt::Debug for Message {
    // What a message says may be personal; it does not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("source", &self.0.source)
            .field("bytes", &self.0.payload.len())
            .field("history", &self.0.history)
            .finish_non_exhaustive()
    }
}
