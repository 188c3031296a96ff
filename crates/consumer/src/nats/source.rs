//! Deliveries of a durable consumer.

use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt};
use tokio::time::sleep;

use super::Jet;
use super::delivery::NatsDelivery;
use crate::adapter::{BrokerError, Delivery, Source};
use crate::patience::in_time;

/// Between attempts to pull again; the client itself reconnects with pauses of its own.
const PAUSE: Duration = Duration::from_millis(500);

pub(super) struct NatsSource {
    jet: Jet,
    consumer: PullConsumer,
    created: i128,
    dead: String,
    at_once: usize,
    messages: Option<pull::Stream>,
}

impl NatsSource {
    pub(super) async fn start(
        jet: Jet,
        consumer: PullConsumer,
        created: i128,
        dead: String,
        at_once: u16,
    ) -> Result<Self, BrokerError> {
        let mut source = Self { jet, consumer, created, dead, at_once: at_once.into(), messages: None };
        source.messages = Some(source.pull().await?);
        Ok(source)
    }

    /// Asks for no more than can be handled: what lies in a buffer here runs out of its time there.
    async fn pull(&self) -> Result<pull::Stream, BrokerError> {
        let pull = self.consumer.stream().max_messages_per_batch(self.at_once);
        let pull = pull.expires(Duration::from_secs(10)).heartbeat(Duration::from_secs(3));
        in_time("pull", pull.messages()).await
    }

    fn delivery(&self, message: async_nats::jetstream::Message) -> Box<dyn Delivery> {
        let ack_wait = self.consumer.cached_info().config.ack_wait;
        Box::new(NatsDelivery::new(message, &self.jet, self.created, &self.dead, ack_wait))
    }
}

#[async_trait]
impl Source for NatsSource {
    async fn next(&mut self) -> Box<dyn Delivery> {
        loop {
            let Some(messages) = &mut self.messages else {
                sleep(PAUSE).await;
                match self.pull().await {
                    Ok(messages) => self.messages = Some(messages),
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "NATS can't be reached, will retry");
                    }
                }
                continue;
            };
            match messages.next().await {
                Some(Ok(message)) => return self.delivery(message),
                Some(Err(error)) => {
                    tracing::warn!(%error, "pulling from NATS failed, will retry");
                    self.messages = None;
                }
                None => self.messages = None,
            }
        }
    }

    async fn stop(&mut self) {
        let Some(mut messages) = self.messages.take() else { return };
        while let Some(Some(Ok(message))) = messages.next().now_or_never() {
            let _ = in_time("give back", message.ack_with(AckKind::Nak(None))).await;
        }
    }

    async fn close(self: Box<Self>) {
        // The last acks may still be on their way.
        let _ = in_time("flush", self.jet.client().flush()).await;
    }
}
