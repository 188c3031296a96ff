//! One delivery, and what can be done with it.

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::{self, AckKind};
use async_trait::async_trait;

use super::Jet;
use super::failures::Failures;
use super::source::Life;
use crate::adapter::{BrokerError, Delivery, Note};
use crate::decision::{Action, Reason};
use crate::message::{History, Message};
use crate::patience::in_time;

/// Until a dead letter that nobody took is tried again.
const DEAD_LATER: Duration = Duration::from_secs(30);

pub(super) struct NatsDelivery {
    message: Message,
    delivery: jetstream::Message,
    jet: Jet,
    life: Arc<Life>,
    failures: Arc<Failures>,
    dead: String,
    ack_wait: Duration,
}

impl NatsDelivery {
    pub(super) fn new(
        delivery: jetstream::Message,
        jet: &Jet,
        (life, failures): (Arc<Life>, Arc<Failures>),
        dead: &str,
        ack_wait: Duration,
    ) -> Self {
        let message = read(&delivery, &failures);
        Self { message, delivery, jet: jet.clone(), life, failures, dead: dead.to_owned(), ack_wait }
    }

    async fn answer(&self, kind: AckKind) -> Result<(), BrokerError> {
        in_time("answer a delivery", self.delivery.ack_with(kind)).await
    }

    /// Sure only once the server has said so. Not where the stream was made again: an ack names a number, and the message that
    /// has it now is another one.
    async fn sure(&self, kind: AckKind) -> Result<(), BrokerError> {
        if self.life.is_over() {
            return Err(BrokerError::new(
                "ack",
                "the stream was deleted and made again; the message went with it",
            ));
        }
        in_time("ack", self.delivery.double_ack_with(kind)).await?;
        self.failures.over(self.message.position());
        Ok(())
    }

    async fn failed(&self, pause: Duration, note: &Note) -> Result<(), BrokerError> {
        self.failures.failed(self.message.position(), note.failures);
        self.answer(AckKind::Nak(Some(pause))).await
    }

    async fn dead(&self, reason: &Reason, note: &Note, then: AckKind) -> Result<(), BrokerError> {
        match self.publish_dead(reason, note).await {
            Ok(()) => self.sure(then).await,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the dead letter was not taken; the message will be tried again"
                );
                self.failed(DEAD_LATER, note).await
            }
        }
    }

    async fn publish_dead(&self, reason: &Reason, note: &Note) -> Result<(), BrokerError> {
        let mut headers = HeaderMap::new();
        for (name, values) in self.delivery.headers.iter().flat_map(HeaderMap::iter) {
            // Not what tells the server what to do with it: its id for the stream's window, which is replaced by one for this dead
            // letter, or which stream or last message is expected, which would refuse it for ever.
            if !name.to_string().to_ascii_lowercase().starts_with("nats-") {
                values.iter().for_each(|value| headers.append(name.clone(), value.clone()));
            }
        }
        for (name, text) in note.headers(reason, self.message.source()) {
            headers.insert(name, text.replace(['\r', '\n'], " "));
        }
        if let Some(position) = self.message.position() {
            let id = format!("{}/{}/{position}", note.group, note.handler);
            headers.insert(async_nats::header::NATS_MESSAGE_ID, id.as_str());
        }
        let publish =
            self.jet.publish_with_headers(self.dead.clone(), headers, self.delivery.payload.clone());
        in_time("publish the dead letter", async { publish.await?.await }).await.map(drop)
    }
}

#[async_trait]
impl Delivery for NatsDelivery {
    fn message(&self) -> &Message {
        &self.message
    }

    async fn act(self: Box<Self>, action: &Action, note: &Note) -> Result<(), BrokerError> {
        match action {
            Action::Ack => self.sure(AckKind::Ack).await,
            Action::Delay(pause) => self.answer(AckKind::Nak(Some(*pause))).await,
            Action::Retry(pause) | Action::RetryTopic(pause) => self.failed(*pause, note).await,
            Action::Park => self.dead(&Reason::Unknown, note, AckKind::Ack).await,
            Action::DeadLetter(reason) => self.dead(reason, note, AckKind::Term).await,
        }
    }

    async fn give_back(self: Box<Self>) {
        let _ = self.answer(AckKind::Nak(None)).await;
    }

    fn progress_every(&self) -> Option<Duration> {
        Some((self.ack_wait / 3).max(Duration::from_millis(100)))
    }

    async fn progress(&self) {
        if let Err(error) = self.answer(AckKind::Progress).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "progress was not reported");
        }
    }
}

fn read(delivery: &jetstream::Message, failures: &Failures) -> Message {
    let mut message = Message::new(delivery.subject.as_str(), delivery.payload.clone());
    for (name, values) in delivery.headers.iter().flat_map(HeaderMap::iter) {
        for value in values {
            message = message.with_header(name.to_string(), value.as_str());
        }
    }
    let Ok(info) = delivery.info() else { return message };
    let deliveries = u32::try_from(info.delivered.saturating_sub(1)).unwrap_or(0);
    // A stream that was deleted and made again counts from one: when the message was stored tells the two apart.
    let stored = info.published.unix_timestamp_nanos();
    let position = format!("{}/{}@{stored}", info.stream, info.stream_sequence);
    let history = History { failures: failures.of(&position), deliveries };
    message.with_position(position).with_history(history)
}
