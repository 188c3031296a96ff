//! A stream of the NATS of the tests.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::{self, Context, stream};
use futures_util::StreamExt;
use onlyonce_consumer::Nats;

use super::Dead;

/// Short, so that what was not acked comes back soon.
pub(crate) const ACK_WAIT: Duration = Duration::from_secs(3);

pub(crate) struct NatsStage {
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) jet: Context,
}

impl NatsStage {
    /// With new streams.
    pub(crate) async fn new(url: &str, name: &str) -> Self {
        let stage = Self::of(url, name).await;
        stage.make(&stage.name, &stage.subject()).await;
        stage.make(&stage.dead_stream(), &stage.dead_subject()).await;
        stage
    }

    async fn make(&self, name: &str, subject: &str) {
        let config = stream::Config {
            name: name.to_owned(),
            subjects: vec![subject.to_owned()],
            max_age: Duration::from_secs(3600),
            // Each message is published twice, and that must not be the broker's merit.
            duplicate_window: Duration::from_millis(100),
            ..stream::Config::default()
        };
        self.jet.create_stream(config).await.unwrap();
    }

    /// Deletes the stream, with its messages and its consumers.
    pub(crate) async fn delete(&self) {
        self.jet.delete_stream(&self.name).await.unwrap();
    }

    /// Makes it again.
    pub(crate) async fn make_again(&self) {
        self.make(&self.name, &self.subject()).await;
    }

    /// With the streams that are there.
    pub(crate) async fn of(url: &str, name: &str) -> Self {
        let client = async_nats::connect(url).await.unwrap();
        Self { url: url.into(), name: name.into(), jet: jetstream::new(client) }
    }

    pub(crate) fn subject(&self) -> String {
        format!("{}.paid", self.name)
    }

    fn dead_subject(&self) -> String {
        format!("dead.{}", self.name)
    }

    fn dead_stream(&self) -> String {
        format!("{}-dead", self.name)
    }

    pub(crate) fn broker(&self) -> Nats {
        broker(&self.url, &self.name)
    }

    pub(crate) fn broker_at(&self, port: u16) -> Nats {
        broker(&format!("nats://127.0.0.1:{port}"), &self.name)
    }

    pub(crate) fn address(&self) -> String {
        self.url.strip_prefix("nats://").unwrap().to_owned()
    }

    /// The id goes into a CloudEvents header: with `Nats-Msg-Id` the server itself would drop what is published twice.
    pub(crate) async fn publish(&self, id: Option<&str>, payload: &str) {
        let mut headers = HeaderMap::new();
        if let Some(id) = id {
            headers.insert("ce-id", id);
        }
        self.publish_with(headers, payload).await;
    }

    pub(crate) async fn publish_with(&self, headers: HeaderMap, payload: &str) {
        let sent = self.jet.publish_with_headers(self.subject(), headers, payload.to_owned().into());
        sent.await.unwrap().await.unwrap();
    }

    pub(crate) async fn dead(&self) -> Vec<Dead> {
        let stream = self.jet.get_stream(self.dead_stream()).await.unwrap();
        let config = pull::Config { durable_name: Some("reader".into()), ..pull::Config::default() };
        let reader: PullConsumer = stream.get_or_create_consumer("reader", config).await.unwrap();
        let mut found = Vec::new();
        let mut batch = reader.fetch().max_messages(10_000).messages().await.unwrap();
        while let Some(Ok(message)) = batch.next().await {
            let headers = message.headers.clone().unwrap_or_default();
            let header = |name: &str| headers.get(name).map(ToString::to_string);
            found.push(Dead {
                reason: header("onlyonce-reason").unwrap_or_default(),
                detail: header("onlyonce-detail").unwrap_or_default(),
                payload: String::from_utf8(message.payload.to_vec()).unwrap(),
                id: header("onlyonce-message-id"),
                record: header("onlyonce-record"),
            });
            message.double_ack().await.unwrap();
        }
        found
    }

    pub(crate) async fn left(&self) -> u64 {
        let stream = self.jet.get_stream(&self.name).await.unwrap();
        match stream.consumer_info("stock-decrement").await {
            Ok(info) => info.num_pending + info.num_ack_pending as u64,
            Err(_) => stream.cached_info().state.messages,
        }
    }
}

pub(crate) fn broker(url: &str, name: &str) -> Nats {
    Nats::new(url, name)
        .subject(format!("{name}.paid"))
        .dead_letter(format!("dead.{name}"))
        .ack_wait(ACK_WAIT)
}
