//! A connection: a channel to consume, and others for what leaves the queue.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lapin::options::{BasicConsumeOptions, BasicQosOptions, ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, Consumer, ExchangeKind};

use super::leaving::Leaving;
use crate::adapter::BrokerError;
use crate::patience::in_time;
use crate::start::StartError;

/// Names are short strings, and a delay queue's is longer than its queue's.
const LONGEST_NAME: usize = 200;

/// Where dead letters are published.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) exchange: String,
    pub(super) key: String,
}

/// How to get a connection, again and again.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) url: String,
    pub(super) queue: String,
    pub(super) dead: Target,
    pub(super) prefetch: u16,
    pub(super) tag: String,
    /// The broker makes no quorum queues.
    pub(super) plain: Arc<AtomicBool>,
}

/// A connection that is open.
pub(super) struct Open {
    connection: Arc<Connection>,
    channel: Channel,
    pub(super) leaving: Arc<Leaving>,
}

impl Link {
    pub(super) fn check_names(&self) -> Result<(), StartError> {
        for name in [&self.queue, &self.dead.exchange, &self.dead.key] {
            if name.len() > LONGEST_NAME {
                return Err(StartError::Source(format!(
                    "the name {name} is longer than {LONGEST_NAME} bytes"
                )));
            }
        }
        if self.queue.is_empty() {
            return Err(StartError::Source("the queue has no name".into()));
        }
        Ok(())
    }

    pub(super) async fn open(&self) -> Result<Open, BrokerError> {
        let connecting = async {
            let connection = Connection::connect(&self.url, ConnectionProperties::default()).await?;
            let connection = Arc::new(connection);
            let channel = connection.create_channel().await?;
            channel.basic_qos(self.prefetch, BasicQosOptions::default()).await?;
            let plain = Arc::clone(&self.plain);
            let leaving = Leaving::on(&connection, self.queue.clone(), self.dead.clone(), plain);
            Ok::<_, lapin::Error>(Open { connection, channel, leaving: Arc::new(leaving) })
        };
        in_time("connect", connecting).await
    }

    /// Looks whether the queues are there, or makes them. A question that is answered with no ends its channel, so each has
    /// one of its own.
    pub(super) async fn prepare(&self, open: &Open, declare: bool) -> Result<(), StartError> {
        let Link { queue, dead, .. } = self;
        self.queue_is_there(open, queue, declare).await.map_err(|why| {
            StartError::Source(format!(
                "the queue {queue} can't be used ({}); make it, or say RabbitMq::declare",
                why.cause()
            ))
        })?;
        let found = if dead.exchange.is_empty() {
            self.queue_is_there(open, &dead.key, declare).await
        } else {
            exchange_is_there(open, &dead.exchange).await
        };
        found.map_err(|why| {
            let name = if dead.exchange.is_empty() { &dead.key } else { &dead.exchange };
            StartError::DeadLetter(format!(
                "the dead letter {name} of {queue} can't be used ({}); make it, or say RabbitMq::declare",
                why.cause()
            ))
        })
    }

    async fn queue_is_there(&self, open: &Open, name: &str, declare: bool) -> Result<(), BrokerError> {
        let asking = async {
            let channel = open.connection.create_channel().await?;
            let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            if channel.queue_declare(name.into(), passive, FieldTable::default()).await.is_ok() {
                return channel.close(200, "found".into()).await;
            }
            let channel = open.connection.create_channel().await?;
            let options = if declare { QueueDeclareOptions::durable() } else { passive };
            channel.queue_declare(name.into(), options, FieldTable::default()).await?;
            channel.close(200, "made".into()).await
        };
        in_time("look for a queue", asking).await
    }

    pub(super) async fn consume(&self, open: &Open) -> Result<Consumer, BrokerError> {
        let options = BasicConsumeOptions::default();
        let consuming = open.channel.basic_consume(
            self.queue.as_str().into(),
            self.tag.as_str().into(),
            options,
            FieldTable::default(),
        );
        in_time("consume", consuming).await
    }
}

impl Open {
    pub(super) async fn close(&self) {
        if let Err(error) = in_time("close", self.connection.close(200, "done".into())).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "the connection was not closed");
        }
    }

    pub(super) async fn cancel(&self, tag: &str) {
        let cancelled = self.channel.basic_cancel(tag.into(), lapin::options::BasicCancelOptions::default());
        if let Err(error) = in_time("stop consuming", cancelled).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "the consumer was not cancelled");
        }
    }
}

async fn exchange_is_there(open: &Open, name: &str) -> Result<(), BrokerError> {
    let asking = async {
        let channel = open.connection.create_channel().await?;
        let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        channel.exchange_declare(name.into(), ExchangeKind::Direct, passive, FieldTable::default()).await?;
        channel.close(200, "found".into()).await
    };
    in_time("look for an exchange", asking).await
}
