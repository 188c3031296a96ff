//! One message, and what can be done with it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::Message as _;
use rdkafka::message::{Header, Headers, OwnedHeaders, OwnedMessage, Timestamp};
use rdkafka::producer::FutureRecord;

use super::lanes::Ticket;
use super::load::Load;
use super::source::Hub;
use crate::adapter::{BrokerError, Delivery, Note};
use crate::decision::{Action, Reason};
use crate::identity::MESSAGE_ID_HEADER;
use crate::message::{History, Message};

const FAILURES: &str = "onlyonce-failures";
const NOT_BEFORE: &str = "onlyonce-not-before";
/// Until a message that could not be passed on is tried again.
const LATER: Duration = Duration::from_secs(5);
/// The longest that the brokers may take to have it.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct KafkaDelivery {
    hub: Arc<Hub>,
    ticket: Ticket,
    load: Arc<Load>,
    message: Message,
}

impl KafkaDelivery {
    pub(super) fn new(
        hub: Arc<Hub>,
        ticket: Ticket,
        load: Arc<Load>,
        failures: u32,
        deliveries: u32,
    ) -> Self {
        let message = read(&load, failures, deliveries);
        Self { hub, ticket, load, message }
    }

    fn done(&self) -> Result<(), BrokerError> {
        self.hub.done(&self.ticket).map_err(|error| BrokerError::new("store the offset", error))
    }

    fn later(&self, pause: Duration, failed: bool) {
        self.hub.desk.hold(&self.ticket, failed);
        self.hub.desk.back_after(self.ticket.clone(), pause);
    }

    /// Passes it on, and is done with it here once the brokers have it there.
    async fn pass_on(&self, topic: &str, headers: Vec<(&str, String)>) -> Result<(), BrokerError> {
        let all = self.headers(&headers);
        let mut record: FutureRecord<'_, [u8], [u8]> =
            FutureRecord::to(topic).payload(self.message.payload()).headers(all);
        if let Some(key) = self.load.message.key() {
            record = record.key(key);
        }
        match self.hub.producer.send(record, PATIENCE).await {
            Ok(_) => self.done(),
            Err((error, _)) => {
                self.later(LATER, false);
                Err(BrokerError::new("pass a message on", error))
            }
        }
    }

    /// Its own headers, but for those that are said anew.
    fn headers(&self, said: &[(&str, String)]) -> OwnedHeaders {
        let mut headers = OwnedHeaders::new();
        let own = self.load.message.headers().into_iter().flat_map(Headers::iter);
        for header in own.filter(|header| said.iter().all(|(name, _)| *name != header.key)) {
            headers = headers.insert(header);
        }
        for (key, value) in said {
            headers = headers.insert(Header { key, value: Some(value) });
        }
        headers
    }

    async fn retry_topic(&self, pause: Duration, note: &Note) -> Result<(), BrokerError> {
        let Some(topic) = &self.hub.retry else {
            self.later(pause, true);
            return Ok(());
        };
        let now = Timestamp::now().to_millis().unwrap_or(0);
        let then = now.saturating_add(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX));
        let mut headers = vec![(FAILURES, note.failures.to_string()), (NOT_BEFORE, then.to_string())];
        headers.extend(note.message_id.clone().map(|id| (MESSAGE_ID_HEADER, id)));
        self.pass_on(topic, headers).await
    }

    async fn dead(&self, reason: &Reason, note: &Note) -> Result<(), BrokerError> {
        let mut headers = note.headers(reason, self.message.source());
        // It starts anew if somebody sends it back.
        headers.extend([(FAILURES, "0".to_owned()), (NOT_BEFORE, "0".to_owned())]);
        self.pass_on(&self.hub.dead, headers).await
    }
}

#[async_trait]
impl Delivery for KafkaDelivery {
    fn message(&self) -> &Message {
        &self.message
    }

    async fn act(self: Box<Self>, action: &Action, note: &Note) -> Result<(), BrokerError> {
        match action {
            Action::Ack => self.done(),
            Action::Delay(pause) => {
                self.later(*pause, false);
                Ok(())
            }
            Action::Retry(pause) => {
                self.later(*pause, true);
                Ok(())
            }
            Action::RetryTopic(pause) => self.retry_topic(*pause, note).await,
            Action::Park => self.dead(&Reason::Unknown, note).await,
            Action::DeadLetter(reason) => self.dead(reason, note).await,
        }
    }

    async fn give_back(self: Box<Self>) {
        self.later(Duration::ZERO, false);
    }
}

fn read(load: &Load, failures: u32, deliveries: u32) -> Message {
    let Load { message: load, garbled } = load;
    let mut message = Message::new(load.topic(), load.payload().unwrap_or_default().to_vec());
    let mut before = 0;
    for header in load.headers().into_iter().flat_map(Headers::iter) {
        let Some(text) = header.value.and_then(|value| std::str::from_utf8(value).ok()) else { continue };
        match header.key {
            FAILURES => before = text.parse().unwrap_or(0),
            name => message = message.with_header(name, text),
        }
    }
    if *garbled {
        message = message.garbled();
    }
    let failures = failures.saturating_add(before);
    // A topic that was deleted and made again counts from zero: the time of the message tells the two apart.
    let time = load.timestamp().to_millis().map(|millis| format!("@{millis}")).unwrap_or_default();
    message
        .with_position(format!("{}/{}/{}{time}", load.topic(), load.partition(), load.offset()))
        .with_history(History { failures, deliveries: deliveries.saturating_add(before) })
}

/// When a message of a retry topic is due, in milliseconds since 1970.
pub(super) fn not_before(load: &OwnedMessage) -> Option<i64> {
    let mut headers = load.headers().into_iter().flat_map(Headers::iter);
    let found = headers.find(|header| header.key == NOT_BEFORE)?.value?;
    std::str::from_utf8(found).ok()?.parse().ok()
}
