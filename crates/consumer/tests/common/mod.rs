//! The brokers that scenarios run on, each with a queue of its own, and short words for what is done on them.
#![allow(dead_code, reason = "not every file of tests uses all of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

pub(crate) mod garbled;
pub(crate) mod kafka;
pub(crate) mod nats;
pub(crate) mod rabbitmq;
pub(crate) mod victims;

use std::time::Duration;

use onlyonce_consumer::adapter::Connect;
use onlyonce_consumer::{Consumer, Consuming, Job, Retries, Stats};
use onlyonce_core::codec::CodecError;
use onlyonce_core::{Bytes, Class, Classify, Idempotency, Settings};
use onlyonce_store_redis::RedisStore;
use onlyonce_testkit::{FaultProxy, Ledger};

pub(crate) use self::kafka::KafkaStage;
pub(crate) use self::nats::NatsStage;
pub(crate) use self::rabbitmq::RabbitStage;

/// The URL in this variable. A missing server is a failure: nothing passes by not being run.
pub(crate) fn url_in(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run `cargo xtask test`, or `cargo xtask services` and set what it prints"
        )
    })
}

/// A name that nobody else has.
pub(crate) fn unique(prefix: &str) -> String {
    format!("{prefix}-{:016x}", rand::random::<u64>())
}

/// A queue on a broker, with its dead letter.
pub(crate) enum Stage {
    Rabbit(RabbitStage),
    Nats(NatsStage),
    Kafka(KafkaStage),
}

/// A message that was found in the dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dead {
    pub(crate) reason: String,
    pub(crate) detail: String,
    pub(crate) payload: String,
    pub(crate) id: Option<String>,
    pub(crate) record: Option<String>,
}

macro_rules! each {
    ($self:ident, $stage:ident => $do:expr) => {
        match $self {
            Stage::Rabbit($stage) => $do,
            Stage::Nats($stage) => $do,
            Stage::Kafka($stage) => $do,
        }
    };
}

impl Stage {
    pub(crate) async fn rabbitmq() -> Self {
        Self::rabbitmq_at(&url_in("ONLYONCE_TEST_AMQP_URL")).await
    }

    pub(crate) async fn nats() -> Self {
        Self::nats_at(&url_in("ONLYONCE_TEST_NATS_URL")).await
    }

    pub(crate) async fn rabbitmq_at(url: &str) -> Self {
        Self::Rabbit(soon("make queues", RabbitStage::new(url, &unique("orders"))).await)
    }

    pub(crate) async fn nats_at(url: &str) -> Self {
        Self::Nats(soon("make streams", NatsStage::new(url, &unique("orders"))).await)
    }

    pub(crate) async fn kafka() -> Self {
        Self::Kafka(soon("make topics", KafkaStage::new(&unique("orders"))).await)
    }

    pub(crate) async fn publish(&self, id: Option<&str>, payload: &str) {
        each!(self, stage => soon("publish", stage.publish(id, payload)).await);
    }

    /// The queue, for a consumer.
    pub(crate) fn broker(&self) -> Box<dyn Connect> {
        each!(self, stage => Box::new(stage.broker()))
    }

    /// The queue, through a proxy.
    pub(crate) fn broker_by(&self, proxy: &FaultProxy) -> Box<dyn Connect> {
        each!(self, stage => Box::new(stage.broker_at(proxy.port())))
    }

    pub(crate) async fn proxy(&self) -> FaultProxy {
        let server = each!(self, stage => stage.address());
        FaultProxy::start(server).await.unwrap()
    }

    /// With a connection of its own, after the server was restarted.
    pub(crate) async fn again(self) -> Self {
        match self {
            Self::Rabbit(stage) => {
                Self::Rabbit(soon("connect", RabbitStage::of(&stage.url, &stage.queue)).await)
            }
            Self::Nats(stage) => Self::Nats(soon("connect", NatsStage::of(&stage.url, &stage.name)).await),
            // The mock cluster lives in its stage.
            Self::Kafka(stage) => Self::Kafka(stage),
        }
    }

    /// Where the broker is.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Rabbit(stage) => stage.url.clone(),
            Self::Nats(stage) => stage.url.clone(),
            Self::Kafka(stage) => stage.brokers.clone(),
        }
    }

    /// The queue, stream or topic.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Rabbit(stage) => stage.queue.clone(),
            Self::Nats(stage) => stage.name.clone(),
            Self::Kafka(stage) => stage.topic.clone(),
        }
    }

    /// What is in the dead letter now; taken out of it.
    pub(crate) async fn dead(&self) -> Vec<Dead> {
        each!(self, stage => soon("look at the dead letter", stage.dead()).await)
    }

    /// How many messages the broker still has for the group: waiting, delayed, or not acked.
    pub(crate) async fn left(&self) -> u64 {
        each!(self, stage => soon("count what is left", stage.left()).await)
    }

    /// Waits until the consumer has nothing more to do: nothing waits, and the counts stand still.
    pub(crate) async fn settled(&self, consuming: &Consuming) {
        let mut before = consuming.stats();
        for _ in 0..90 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = consuming.stats();
            if now == before && self.left().await == 0 {
                return;
            }
            before = now;
        }
        panic!("after a minute and a half {} messages are still there: {before:?}", self.left().await);
    }

    /// Consumes until nothing is left at all, also of what was held by nobody knows whom when it looked as if.
    pub(crate) async fn drain(&self, consumer: impl Fn() -> Consumer) {
        for _ in 0..5 {
            let consuming = consumer().start(connect(&self.url(), &self.name())).await.unwrap();
            self.settled(&consuming).await;
            stop(consuming).await;
            if self.left().await == 0 {
                return;
            }
        }
        panic!("{} messages are still there", self.left().await);
    }
}

/// The queue of a stage that is in another process.
pub(crate) fn connect(url: &str, name: &str) -> Box<dyn Connect> {
    match url.split(':').next().unwrap() {
        "amqp" => Box::new(rabbitmq::broker(url, name)),
        "nats" => Box::new(nats::broker(url, name)),
        _ => Box::new(kafka::hurried(url, name)),
    }
}

pub(crate) fn names(n: u32) -> impl Iterator<Item = String> {
    (0..n).map(|n| format!("message-{n}"))
}

/// A broker that says nothing fails the test, with what it was asked.
pub(crate) async fn soon<T>(what: &str, step: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(60), step).await;
    done.unwrap_or_else(|_| panic!("the broker did not {what} within a minute"))
}

/// What handlers of tests fail with.
#[derive(Debug)]
pub(crate) enum Trouble {
    OutOfStock,
    DatabaseDown,
    TimedOut,
}

impl Classify for Trouble {
    fn classify(&self) -> Class {
        match self {
            Self::OutOfStock => Class::Keep,
            Self::DatabaseDown => Class::Release,
            Self::TimedOut => Class::Unknown,
        }
    }

    fn save(&self) -> Result<Bytes, CodecError> {
        Ok(Bytes::from_static(b"out of stock"))
    }

    fn revive(_: Bytes) -> Result<Self, CodecError> {
        Ok(Self::OutOfStock)
    }
}

/// Short pauses, so that tests are short; long leases, so that a slow machine loses none.
pub(crate) fn quick() -> Retries {
    Retries { first: Duration::from_millis(200), longest: Duration::from_secs(1), ..Retries::default() }
}

pub(crate) fn settings() -> Settings {
    Settings { retain: Duration::from_secs(3600), ..Settings::default() }
}

/// An engine on the Redis of the tests, with records of its own.
pub(crate) async fn engine() -> Idempotency {
    engine_at(url_in("ONLYONCE_TEST_REDIS_URL"), &unique("consumer")).await
}

pub(crate) async fn engine_at(url: String, prefix: &str) -> Idempotency {
    let store = RedisStore::builder(url).prefix(prefix).open().await.unwrap();
    Idempotency::builder(store).settings(settings()).build().unwrap()
}

/// A consumer that writes each message into the ledger.
pub(crate) fn writer(once: &Idempotency, ledger: &Ledger) -> Consumer {
    let ledger = ledger.clone();
    consumer(once, move |job| {
        let ledger = ledger.clone();
        async move {
            record(&ledger, &job);
            Ok(())
        }
    })
}

/// What the message says.
pub(crate) fn text(job: &Job) -> String {
    String::from_utf8(job.message().payload().to_vec()).unwrap()
}

pub(crate) fn record(ledger: &Ledger, job: &Job) {
    ledger.record(&text(job), &job.permit().fence().to_string()).unwrap();
}

pub(crate) fn consumer<F>(once: &Idempotency, handler: impl Fn(Job) -> F + Send + Sync + 'static) -> Consumer
where
    F: Future<Output = Result<(), Trouble>> + Send + 'static,
{
    Consumer::new(once.clone(), "stock", "decrement", handler)
        .retries(quick())
        .replay_horizon(Duration::from_secs(60))
}

pub(crate) async fn start(consumer: Consumer, stage: &Stage) -> Consuming {
    consumer.start(stage.broker()).await.unwrap()
}

pub(crate) async fn stop(consuming: Consuming) {
    consuming.shutdown(Duration::from_secs(30)).await;
}

/// Waits until the counts are as wanted.
pub(crate) async fn until(consuming: &Consuming, wanted: impl Fn(Stats) -> bool) {
    for _ in 0..600 {
        if wanted(consuming.stats()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("after a minute still {:?}", consuming.stats());
}

/// Waits until there are so many effects.
pub(crate) async fn until_effects(ledger: &Ledger, n: usize) {
    for _ in 0..600 {
        if ledger.effects().unwrap().len() >= n {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("after a minute there are {} effects, not {n}", ledger.effects().unwrap().len());
}

pub(crate) fn assert_one_each(ledger: &Ledger, messages: impl IntoIterator<Item = String>) {
    for message in messages {
        assert_eq!(ledger.count(&message).unwrap(), 1, "effects of {message}");
    }
}
