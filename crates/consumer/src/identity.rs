//! Which message this is: the id under which it has its one effect.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use onlyonce_core::{FingerprintBuilder, Key, MAX_KEY_BYTES};
use serde::Deserialize;

use crate::message::Message;

/// The id of a message that was passed on by a consumer, where its own would change: in a retry topic or a dead letter.
pub const MESSAGE_ID_HEADER: &str = "onlyonce-message-id";

/// The key of an event of an outbox: events of one key are in one order.
pub const KEY_HEADER: &str = "onlyonce-key";

/// Finds the id of a message in the message itself; `None` leaves it to what the broker knows.
pub type Extract = dyn Fn(&Message) -> Option<String> + Send + Sync;

/// Where ids come from: an extractor of your own first, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Identify(Option<Arc<Extract>>);

impl Identify {
    pub(crate) fn by(extract: Arc<Extract>) -> Self {
        Self(Some(extract))
    }

    /// The id: what an earlier consumer wrote, else from the extractor, else `message_id` or `Nats-Msg-Id`, else the id of
    /// a CloudEvent within its source, else the position in the stream.
    pub(crate) fn id_of(&self, message: &Message) -> Result<Key, NoId> {
        let own = || message.header(MESSAGE_ID_HEADER).map(str::to_owned);
        let extracted = match &self.0 {
            // It is not asked where it does not matter: it may not understand what was passed on.
            Some(extract) if own().is_none_or(|id| id.is_empty()) => {
                catch_unwind(AssertUnwindSafe(|| extract(message))).map_err(|_| NoId::Panicked)?
            }
            _ => None,
        };
        let given = || message.id().or_else(|| message.header("nats-msg-id")).map(str::to_owned);
        let position = || message.position().map(|position| fitting(position.to_owned()));
        let present = |id: &String| !id.is_empty();
        let id = own()
            .filter(present)
            .or_else(|| extracted.filter(present))
            .or_else(|| given().filter(present))
            .or_else(|| cloud_event(message).filter(present))
            .or_else(position)
            .ok_or(NoId::Missing)?;
        let bytes = id.len();
        Key::new(id).map_err(|_| NoId::TooLong { bytes })
    }
}

impl fmt::Debug for Identify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Identify(extractor, else known ids)"
        } else {
            "Identify(known ids)"
        })
    }
}

/// A name that is longer than a key may be, by its digest.
pub(crate) fn fitting(name: String) -> String {
    match name.len() {
        0..=MAX_KEY_BYTES => name,
        _ => FingerprintBuilder::new().part(name.as_bytes()).finish().to_string(),
    }
}

/// Why a message has no id by which it could be known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoId {
    /// There is none, and no extractor finds one.
    Missing,
    /// It is longer than a key may be.
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// The extractor panicked.
    Panicked,
}

impl fmt::Display for NoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str(
                "the message has no id: set message_id, Nats-Msg-Id or a CloudEvents id when publishing, or give the consumer an extractor",
            ),
            Self::TooLong { bytes } => {
                write!(f, "the message id has {bytes} bytes; the limit is {MAX_KEY_BYTES}")
            }
            Self::Panicked => f.write_str("the extractor of the message id panicked"),
        }
    }
}

/// A CloudEvent's id is unique only together with its source. Binary mode: headers, spelled differently by each binding.
/// Structured mode: in the payload.
fn cloud_event(message: &Message) -> Option<String> {
    #[derive(Deserialize)]
    struct Envelope {
        id: String,
        #[serde(default)]
        source: String,
    }
    let attribute = |name: &str| {
        let spelled = ["ce-", "ce_", "cloudEvents:", "cloudEvents_"].map(|prefix| format!("{prefix}{name}"));
        spelled.iter().find_map(|spelled| message.header(spelled)).map(str::to_owned)
    };
    let event = match attribute("id") {
        Some(id) => Envelope { id, source: attribute("source").unwrap_or_default() },
        None if is_envelope(message.content_type()?) => message.json::<Envelope>().ok()?,
        None => return None,
    };
    Some(if event.source.is_empty() { event.id } else { format!("{} {}", event.source, event.id) })
}

/// A media type is the same in upper and lower case, and whatever its parameters.
fn is_envelope(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/cloudevents+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(message: &Message) -> Result<String, NoId> {
        Identify::default().id_of(message).map(|key| key.as_str().to_owned())
    }

    fn bare() -> Message {
        Message::new("orders", "{}")
    }

    #[test]
    fn an_extractor_comes_before_what_the_broker_knows() {
        let identify = Identify::by(Arc::new(|message| message.header("order").map(str::to_owned)));
        let message = bare().with_id("property").with_header("order", "42");
        assert_eq!(identify.id_of(&message).unwrap().as_str(), "42");
        assert_eq!(identify.id_of(&bare().with_id("property")).unwrap().as_str(), "property");
    }

    #[test]
    fn an_id_given_by_the_sender_comes_before_the_position() {
        assert_eq!(id(&bare().with_id("a").with_position("s/1")).unwrap(), "a");
        assert_eq!(id(&bare().with_header("Nats-Msg-Id", "b").with_position("s/1")).unwrap(), "b");
        assert_eq!(id(&bare().with_position("s/1")).unwrap(), "s/1");
    }

    #[test]
    fn a_cloud_event_is_known_by_its_source_and_id_in_every_binding() {
        for (name, source) in
            [("ce-id", "ce-source"), ("ce_id", "ce_source"), ("cloudEvents:id", "cloudEvents:source")]
        {
            let message = bare().with_header(name, "1").with_header(source, "/shop");
            assert_eq!(id(&message).unwrap(), "/shop 1");
        }
        let structured = |content_type| {
            let message = Message::new("orders", r#"{"specversion":"1.0","id":"1","source":"/shop"}"#);
            id(&message.with_content_type(content_type).with_position("s/1")).unwrap()
        };
        for content_type in [
            "application/cloudevents+json",
            "application/cloudevents+json; charset=utf-8",
            "Application/CloudEvents+JSON ;charset=utf-8",
        ] {
            assert_eq!(structured(content_type), "/shop 1", "{content_type}");
        }
        assert_eq!(structured("application/json"), "s/1");
    }

    #[test]
    fn a_message_that_was_passed_on_keeps_its_first_identity() {
        let message = bare().with_header(MESSAGE_ID_HEADER, "orders/0/7").with_position("orders.retry/0/1");
        assert_eq!(id(&message).unwrap(), "orders/0/7");
    }

    #[test]
    fn an_extractor_that_panics_makes_one_message_poison() {
        let identify = Identify::by(Arc::new(|_| panic!("as it should")));
        assert_eq!(identify.id_of(&bare().with_id("a")).unwrap_err(), NoId::Panicked);
        let passed_on = bare().with_header(MESSAGE_ID_HEADER, "orders/0/7");
        assert_eq!(identify.id_of(&passed_on).unwrap().as_str(), "orders/0/7");
    }

    #[test]
    fn a_position_with_a_long_name_is_known_by_its_digest() {
        let long = |n: u32| id(&bare().with_position(format!("{}/{n}", "s".repeat(250)))).unwrap();
        assert!(long(10_000).len() <= 255);
        assert_ne!(long(10_000), long(10_001));
        assert_eq!(long(10_000), long(10_000));
    }

    #[test]
    fn a_message_without_an_id_says_what_to_do() {
        let why = id(&bare()).unwrap_err();
        assert_eq!(why, NoId::Missing);
        assert!(why.to_string().contains("extractor"), "{why}");
        assert_eq!(id(&bare().with_id("")).unwrap_err(), NoId::Missing);
        assert_eq!(id(&bare().with_id("x".repeat(256))).unwrap_err(), NoId::TooLong { bytes: 256 });
    }
}
