//! Deliveries of a durable consumer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::stream::Stream;
use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt};
use tokio::time::sleep;

use super::delivery::NatsDelivery;
use super::failures::Failures;
use super::{Jet, Nats};
use crate::adapter::{BrokerError, Delivery, Plan, Source};
use crate::patience::in_time;
use crate::start::StartError;

/// Between attempts to pull again; the client itself reconnects with pauses of its own.
const PAUSE: Duration = Duration::from_millis(500);

/// The time between the making of a stream and its end.
pub(super) struct Life {
    created: i128,
    over: AtomicBool,
}

impl Life {
    fn of(stream: &Stream) -> Arc<Self> {
        let created = stream.cached_info().created.unix_timestamp_nanos();
        Arc::new(Self { created, over: AtomicBool::new(false) })
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

pub(super) struct NatsSource {
    nats: Nats,
    plan: Plan,
    jet: Jet,
    dead: String,
    consumer: PullConsumer,
    life: Arc<Life>,
    failures: Arc<Failures>,
    messages: Option<pull::Stream>,
}

impl NatsSource {
    pub(super) async fn start(
        nats: Nats,
        plan: Plan,
        jet: Jet,
        dead: String,
        stream: &Stream,
    ) -> Result<Self, StartError> {
        let consumer = nats.durable_consumer(stream, &plan).await?;
        let (life, failures) = (Life::of(stream), Arc::default());
        let mut source = Self { nats, plan, jet, dead, consumer, life, failures, messages: None };
        source.messages = Some(source.pull().await?);
        Ok(source)
    }

    /// Asks for no more than can be handled: what lies in a buffer here runs out of its time there.
    async fn pull(&self) -> Result<pull::Stream, BrokerError> {
        let pull = self.consumer.stream().max_messages_per_batch(self.plan.at_once.into());
        let pull = pull.expires(Duration::from_secs(10)).heartbeat(Duration::from_secs(3));
        in_time("pull", pull.messages()).await
    }

    /// Pulls again. The stream and the durable consumer may have been deleted, and made again, meanwhile; the stream must be made by
    /// somebody else, the consumer is made here.
    async fn pull_again(&mut self) -> Result<(), StartError> {
        let stream = self.nats.find(&self.jet).await?;
        let life = Life::of(&stream);
        if life.created != self.life.created {
            tracing::warn!(stream = self.nats.stream, "the stream was deleted and made again");
            self.life.over.store(true, Ordering::Release);
            self.life = life;
        }
        self.consumer = self.nats.durable_consumer(&stream, &self.plan).await?;
        self.messages = Some(self.pull().await?);
        Ok(())
    }

    fn delivery(&self, message: async_nats::jetstream::Message) -> Box<dyn Delivery> {
        let ack_wait = self.consumer.cached_info().config.ack_wait;
        let here = (Arc::clone(&self.life), Arc::clone(&self.failures));
        Box::new(NatsDelivery::new(message, &self.jet, here, &self.dead, ack_wait))
    }
}

#[async_trait]
impl Source for NatsSource {
    async fn next(&mut self) -> Box<dyn Delivery> {
        loop {
            let Some(messages) = &mut self.messages else {
                sleep(PAUSE).await;
                if let Err(error) = self.pull_again().await {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, stream = self.nats.stream, "NATS can't be pulled from, will retry");
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
