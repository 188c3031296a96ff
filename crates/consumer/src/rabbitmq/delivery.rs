//! One delivery, and what can be done with it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lapin::BasicProperties;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use lapin::types::{AMQPValue, FieldTable};

use super::leaving::Leaving;
use crate::adapter::{BrokerError, Delivery, Note};
use crate::decision::{Action, Reason};
use crate::message::{History, Message};
use crate::patience::in_time;

const FAILURES: &str = "onlyonce-failures";
const DELIVERIES: &str = "onlyonce-deliveries";
/// Before a message is given back that could be sent nowhere: at least, and at most.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Until a dead letter that leads nowhere is tried again.
const DEAD_LATER: Duration = Duration::from_secs(30);

pub(super) struct RabbitDelivery {
    message: Message,
    delivery: lapin::message::Delivery,
    leaving: Arc<Leaving>,
}

impl RabbitDelivery {
    pub(super) fn new(delivery: lapin::message::Delivery, leaving: Arc<Leaving>) -> Self {
        Self { message: read(&leaving.queue, &delivery), delivery, leaving }
    }

    async fn done(&self) -> Result<(), BrokerError> {
        match in_time("ack", self.delivery.ack(BasicAckOptions::default())).await? {
            true => Ok(()),
            false => Err(BrokerError::new("ack", "the connection that delivered it is gone")),
        }
    }

    async fn later(&self, pause: Duration, failures: u32, deliveries: u32) -> Result<(), BrokerError> {
        let counts = [(FAILURES, failures), (DELIVERIES, deliveries)];
        let counts = counts.map(|(name, n)| (name, AMQPValue::LongLongInt(n.into())));
        let properties = self.properties(counts);
        self.leaving.later(pause, &self.delivery.data, properties).await?;
        self.done().await
    }

    async fn dead(&self, reason: &Reason, note: &Note) -> Result<(), BrokerError> {
        let headers = note.headers(reason, &self.leaving.queue);
        // It starts anew if somebody sends it back.
        let counts = [FAILURES, DELIVERIES].map(|name| (name, AMQPValue::LongLongInt(0)));
        let texts = headers.into_iter().map(|(name, text)| (name, AMQPValue::LongString(text.into())));
        let properties = self.properties(counts.into_iter().chain(texts));
        match self.leaving.dead(&self.delivery.data, properties).await {
            Ok(()) => self.done().await,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the dead letter was not taken; the message will be tried again"
                );
                self.later(DEAD_LATER, note.failures, note.deliveries).await
            }
        }
    }

    /// Its own properties, and these headers; persistent, because it may have to wait.
    fn properties(&self, headers: impl IntoIterator<Item = (&'static str, AMQPValue)>) -> BasicProperties {
        let own = &self.delivery.properties;
        let mut table = FieldTable::default();
        for (name, value) in own.headers().iter().flatten().filter(|(name, _)| may_follow(name.as_str())) {
            table.insert(name.clone(), value.clone());
        }
        for (name, value) in headers {
            table.insert(name.into(), value);
        }
        // Not its expiry, with which it would vanish while it waits, and not its user, whom only that user may name.
        let mut properties = BasicProperties::default().with_headers(table).with_delivery_mode(2);
        macro_rules! keep {
            ($($get:ident $with:ident),*) => {$(
                if let Some(value) = own.$get().clone() {
                    properties = properties.$with(value);
                }
            )*};
        }
        keep!(
            content_type with_content_type, content_encoding with_content_encoding, priority with_priority,
            correlation_id with_correlation_id, reply_to with_reply_to, message_id with_message_id,
            timestamp with_timestamp, kind with_type, app_id with_app_id
        );
        properties
    }
}

#[async_trait]
impl Delivery for RabbitDelivery {
    fn message(&self) -> &Message {
        &self.message
    }

    async fn act(self: Box<Self>, action: &Action, note: &Note) -> Result<(), BrokerError> {
        let acted = match action {
            Action::Ack => self.done().await,
            Action::Delay(pause) => {
                self.later(*pause, self.message.history().failures, note.deliveries).await
            }
            Action::Retry(pause) | Action::RetryTopic(pause) => {
                self.later(*pause, note.failures, note.deliveries).await
            }
            Action::Park => self.dead(&Reason::Unknown, note).await,
            Action::DeadLetter(reason) => self.dead(reason, note).await,
        };
        if acted.is_err() {
            // It waits here, where nothing else can make it wait.
            let pause = match action {
                Action::Delay(pause) | Action::Retry(pause) | Action::RetryTopic(pause) => *pause,
                Action::Ack => PAUSE,
                Action::Park | Action::DeadLetter(_) => DEAD_LATER,
            };
            tokio::time::sleep(pause.clamp(PAUSE, LONGEST_PAUSE)).await;
            requeue(&self.delivery).await;
        }
        acted
    }

    async fn give_back(self: Box<Self>) {
        requeue(&self.delivery).await;
    }
}

/// Not where else it went when it was first published: it is there already. And not where it died before: to the broker a message that
/// died in its queue, and is to return there from a delay queue, goes in a circle, and it drops it.
fn may_follow(header: &str) -> bool {
    header != "CC"
        && header != "x-death"
        && !["x-first-death-", "x-last-death-"].iter().any(|prefix| header.starts_with(prefix))
}

/// Gives it back to the queue. Where that is not heard, the end of the connection says it.
pub(super) async fn requeue(delivery: &lapin::message::Delivery) {
    let options = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
    if let Err(error) = in_time("give back", delivery.nack(options)).await {
        tracing::debug!(error = &error as &dyn std::error::Error, "a message was not given back");
    }
}

fn read(queue: &str, delivery: &lapin::message::Delivery) -> Message {
    let mut message = Message::new(queue, delivery.data.clone());
    let mut history = History { failures: 0, deliveries: u32::from(delivery.redelivered) };
    let properties = &delivery.properties;
    for (name, value) in properties.headers().iter().flatten() {
        match (name.as_str(), value) {
            (FAILURES, AMQPValue::LongLongInt(n)) => history.failures = u32::try_from(*n).unwrap_or(0),
            (DELIVERIES, AMQPValue::LongLongInt(n)) => {
                history.deliveries = history.deliveries.saturating_add(u32::try_from(*n).unwrap_or(0));
            }
            (name, value) => {
                if let Some(text) = text(value) {
                    message = message.with_header(name, text);
                }
            }
        }
    }
    if let Some(id) = properties.message_id() {
        message = message.with_id(id.as_str());
    }
    if let Some(content_type) = properties.content_type() {
        message = message.with_content_type(content_type.as_str());
    }
    message.with_history(history)
}

/// Headers that are text, or as good as text.
fn text(value: &AMQPValue) -> Option<String> {
    match value {
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok().map(str::to_owned),
        AMQPValue::ShortString(text) => Some(text.to_string()),
        AMQPValue::Boolean(yes) => Some(yes.to_string()),
        AMQPValue::LongInt(n) => Some(n.to_string()),
        AMQPValue::LongLongInt(n) => Some(n.to_string()),
        AMQPValue::LongUInt(n) => Some(n.to_string()),
        _ => None,
    }
}
