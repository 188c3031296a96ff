//! A queue of the RabbitMQ of the tests.

use lapin::options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use onlyonce_consumer::RabbitMq;

use super::Dead;

pub(crate) struct RabbitStage {
    pub(crate) url: String,
    pub(crate) queue: String,
    connection: Connection,
    pub(crate) channel: Channel,
}

impl RabbitStage {
    /// With new queues.
    pub(crate) async fn new(url: &str, queue: &str) -> Self {
        let stage = Self::of(url, queue).await;
        for name in [queue.to_owned(), stage.dead_queue()] {
            let options = QueueDeclareOptions::durable();
            stage.channel.queue_declare(name.into(), options, FieldTable::default()).await.unwrap();
        }
        stage
    }

    /// With the queues that are there.
    pub(crate) async fn of(url: &str, queue: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        Self { url: url.into(), queue: queue.into(), connection, channel }
    }

    pub(crate) fn dead_queue(&self) -> String {
        format!("{}.dead", self.queue)
    }

    /// The delay queues of so many milliseconds: the quorum queue, and the classic one.
    pub(crate) fn delay_queues(&self, tier: u64) -> [String; 2] {
        [".quorum", ""].map(|form| format!("{}.delay.{tier}{form}", self.queue))
    }

    pub(crate) fn broker(&self) -> RabbitMq {
        broker(&self.url, &self.queue)
    }

    pub(crate) fn broker_at(&self, port: u16) -> RabbitMq {
        let (_, vhost) = self.url.rsplit_once('/').unwrap();
        broker(&format!("amqp://guest:guest@127.0.0.1:{port}/{vhost}"), &self.queue)
    }

    pub(crate) fn address(&self) -> String {
        let (_, rest) = self.url.rsplit_once('@').unwrap();
        rest.split('/').next().unwrap().to_owned()
    }

    pub(crate) async fn publish(&self, id: Option<&str>, payload: &str) {
        let mut properties = BasicProperties::default();
        if let Some(id) = id {
            properties = properties.with_message_id(id.into());
        }
        self.publish_with(properties, payload).await;
    }

    pub(crate) async fn publish_with(&self, properties: BasicProperties, payload: &str) {
        let properties = properties.with_delivery_mode(2);
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let published = self
            .channel
            .basic_publish("".into(), self.queue.as_str().into(), options, payload.as_bytes(), properties)
            .await
            .unwrap();
        assert!(published.await.unwrap().take_message().is_none());
    }

    pub(crate) async fn dead(&self) -> Vec<Dead> {
        let mut found = Vec::new();
        let name = self.dead_queue();
        let options = BasicGetOptions { no_ack: true };
        while let Some(message) = self.channel.basic_get(name.as_str().into(), options).await.unwrap() {
            let headers = message.properties.headers().clone().unwrap_or_default();
            let header = |name: &str| match headers.inner().get(name) {
                Some(AMQPValue::LongString(text)) => Some(text.to_string()),
                _ => None,
            };
            found.push(Dead {
                reason: header("onlyonce-reason").unwrap_or_default(),
                detail: header("onlyonce-detail").unwrap_or_default(),
                payload: String::from_utf8(message.data.clone()).unwrap(),
                id: header("onlyonce-message-id"),
                record: header("onlyonce-record"),
            });
        }
        found
    }

    /// Those that are not acked show only once nobody consumes, so ask when the consumers are gone, or when none is held.
    pub(crate) async fn left(&self) -> u64 {
        let mut left = 0;
        let tiers = (0..14).flat_map(|n| self.delay_queues(1 << n));
        for name in std::iter::once(self.queue.clone()).chain(tiers) {
            // A question about a queue that is not there ends its channel.
            let channel = self.connection.create_channel().await.unwrap();
            let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::durable() };
            if let Ok(queue) = channel.queue_declare(name.into(), passive, FieldTable::default()).await {
                left += u64::from(queue.message_count());
                let _ = channel.close(200, "asked".into()).await;
            }
        }
        left
    }
}

pub(crate) fn broker(url: &str, queue: &str) -> RabbitMq {
    RabbitMq::new(url, queue).dead_letter(format!("{queue}.dead"))
}
