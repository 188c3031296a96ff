//! What an event may look like: only what every broker takes, so that what is committed can be published.

use onlyonce_core::MAX_KEY_BYTES;

use super::event::{Event, OutboxError};

/// A routing key and the name of a header are short strings of RabbitMQ.
const LONGEST_NAME: usize = 255;
/// All headers together. RabbitMQ wants them in one frame, of 128 KiB.
const MOST_HEADERS: usize = 64 << 10;

/// Refuses an event that a broker could not take.
pub(super) fn check(event: &Event) -> Result<(), OutboxError> {
    let Event { id, topic, key, headers, .. } = event;
    sized("message id", id, MAX_KEY_BYTES)?;
    plain("message id", id)?;
    sized("topic", topic, LONGEST_NAME)?;
    subject(topic)?;
    if let Some(key) = key {
        sized("key", key, LONGEST_NAME)?;
        plain("key", key)?;
    }
    for (name, value) in headers {
        sized("name of a header", name, LONGEST_NAME)?;
        header_name(name)?;
        if value.contains(['\r', '\n', '\0']) {
            return refused(format!("the header {name} holds a line break or a NUL; encode its value"));
        }
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > MOST_HEADERS {
        return refused(format!(
            "the headers have {bytes} bytes; send up to {MOST_HEADERS}, and the rest as payload"
        ));
    }
    Ok(())
}

fn refused(says: String) -> Result<(), OutboxError> {
    Err(OutboxError::input(says))
}

fn sized(what: &str, text: &str, most: usize) -> Result<(), OutboxError> {
    match text.len() {
        bytes if (1..=most).contains(&bytes) => Ok(()),
        bytes => refused(format!("the {what} has {bytes} bytes; send 1 to {most}")),
    }
}

/// It comes back from a header as it was: without line breaks, and without spaces around it, which NATS takes away.
fn plain(what: &str, text: &str) -> Result<(), OutboxError> {
    if text.contains(char::is_control) || text.trim() != text {
        return refused(format!(
            "the {what} {text:?} has control characters, or spaces around it; leave them out"
        ));
    }
    Ok(())
}

/// A subject of NATS, a routing key of RabbitMQ, a topic of Kafka.
fn subject(topic: &str) -> Result<(), OutboxError> {
    if topic.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return refused(format!("the topic {topic:?} has spaces or control characters; leave them out"));
    }
    if topic.split('.').any(|word| matches!(word, "" | "*" | ">")) {
        return refused(format!("the topic {topic:?} has an empty word or a wildcard between its dots"));
    }
    Ok(())
}

fn header_name(name: &str) -> Result<(), OutboxError> {
    if name.contains(|c: char| !c.is_ascii_graphic() || c == ':') {
        return refused(format!(
            "the header {name:?} has a name that is not of visible ASCII without colons"
        ));
    }
    let reserved = ["nats-", "onlyonce-"];
    if reserved
        .iter()
        .any(|prefix| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)))
    {
        return refused(format!(
            "the header {name} means something to the broker or to the consumer; use another name"
        ));
    }
    Ok(())
}
