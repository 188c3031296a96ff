//! A topic of a Kafka: librdkafka's own mock cluster, which speaks the protocol of a broker on real sockets but keeps its
//! data in this process. No registry has a broker to install; a given `ONLYONCE_TEST_KAFKA_BROKERS` is used instead.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce_consumer::Kafka;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedMessage, Header, Headers, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Dead, garbled};

const GIVEN: &str = "ONLYONCE_TEST_KAFKA_BROKERS";
const PARTITIONS: i32 = 4;
const PATIENCE: Duration = Duration::from_secs(20);

type Mock = MockCluster<'static, DefaultProducerContext>;

pub(crate) struct KafkaStage {
    /// Ends with the stage.
    cluster: Option<Mock>,
    pub(crate) brokers: String,
    pub(crate) topic: String,
    producer: FutureProducer,
    seen: AtomicUsize,
    sent: AtomicUsize,
}

impl KafkaStage {
    /// With new topics.
    pub(crate) async fn new(topic: &str) -> Self {
        match std::env::var(GIVEN) {
            Ok(brokers) => Self::with_topics(None, brokers, topic).await,
            Err(_) => Self::mock(topic).await,
        }
    }

    /// On a mock cluster, whatever is given.
    pub(crate) async fn mock(topic: &str) -> Self {
        let cluster = MockCluster::new(1).unwrap();
        let brokers = cluster.bootstrap_servers();
        Self::with_topics(Some(cluster), brokers, topic).await
    }

    async fn with_topics(cluster: Option<Mock>, brokers: String, topic: &str) -> Self {
        let stage = Self::at(cluster, &brokers, topic);
        let names = [(topic.to_owned(), PARTITIONS), (stage.retry_topic(), 1), (stage.dead_topic(), 1)];
        for (name, partitions) in names {
            match &stage.cluster {
                Some(cluster) => cluster.create_topic(&name, partitions, 1).unwrap(),
                None => {
                    let admin: AdminClient<DefaultClientContext> = config(&brokers).create().unwrap();
                    let topic = NewTopic::new(&name, partitions, TopicReplication::Fixed(1));
                    admin.create_topics([&topic], &AdminOptions::new()).await.unwrap();
                }
            }
        }
        stage
    }

    fn at(cluster: Option<Mock>, brokers: &str, topic: &str) -> Self {
        let producer = config(brokers).set("message.timeout.ms", "20000").create().unwrap();
        let (brokers, topic) = (brokers.to_owned(), topic.to_owned());
        Self { cluster, brokers, topic, producer, seen: AtomicUsize::new(0), sent: AtomicUsize::new(0) }
    }

    /// Hangs up on everybody, and takes no calls.
    pub(crate) fn down(&self) {
        self.cluster.as_ref().unwrap().broker_down(-1).unwrap();
    }

    pub(crate) fn up(&self) {
        self.cluster.as_ref().unwrap().broker_up(-1).unwrap();
    }

    pub(crate) fn retry_topic(&self) -> String {
        format!("{}.retry", self.topic)
    }

    fn dead_topic(&self) -> String {
        format!("{}.dead", self.topic)
    }

    pub(crate) fn broker(&self) -> Kafka {
        broker(&self.brokers, &self.topic)
    }

    pub(crate) fn broker_at(&self, port: u16) -> Kafka {
        broker(&format!("127.0.0.1:{port}"), &self.topic)
    }

    pub(crate) fn address(&self) -> String {
        self.brokers.split(',').next().unwrap().to_owned()
    }

    pub(crate) async fn publish(&self, id: Option<&str>, payload: &str) {
        let mut headers = OwnedHeaders::new();
        if let Some(id) = id {
            headers = headers.insert(Header { key: "ce_id", value: Some(id) });
        }
        // In turn, so that two copies of a message are not kept apart by their partition's order.
        let partition = i32::try_from(self.sent.fetch_add(1, Ordering::SeqCst)).unwrap() % PARTITIONS;
        let record = FutureRecord::to(&self.topic).payload(payload).key(payload).headers(headers);
        let record = record.partition(partition);
        self.producer.send(record, PATIENCE).await.unwrap();
    }

    /// Into the first partition, with a header whose name is not UTF-8. No client of Rust sends one; those of other languages do.
    pub(crate) async fn publish_garbled(&self, payload: &str) {
        let produce = garbled::produce(&self.topic, payload.as_bytes());
        let mut broker = TcpStream::connect(self.address()).await.unwrap();
        broker.write_all(&produce).await.unwrap();
        // Length, number of the request, one topic, its name, one partition, its number: then the error.
        let mut answer = vec![0; 4 + 4 + 4 + 2 + self.topic.len() + 4 + 4 + 2];
        broker.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer[answer.len() - 2..], [0, 0], "{answer:?}");
    }

    pub(crate) async fn dead(&self) -> Vec<Dead> {
        let (brokers, topic) = (self.brokers.clone(), self.dead_topic());
        let all = tokio::task::spawn_blocking(move || read_all(&brokers, &topic)).await.unwrap();
        let before = self.seen.swap(all.len(), Ordering::SeqCst);
        all.into_iter().skip(before).collect()
    }

    /// What is in the topic, partition by partition in its order: the partition, the key and the id of each.
    pub(crate) async fn stored(&self) -> Vec<(i32, String, String)> {
        let (brokers, topic) = (self.brokers.clone(), self.topic.clone());
        tokio::task::spawn_blocking(move || {
            (0..PARTITIONS)
                .flat_map(|partition| {
                    read_partition(&brokers, &topic, partition, |message| {
                        let text = |bytes: Option<&[u8]>| {
                            String::from_utf8(bytes.unwrap_or_default().to_vec()).unwrap()
                        };
                        (
                            partition,
                            text(message.key()),
                            header(message, "onlyonce-message-id").unwrap_or_default(),
                        )
                    })
                })
                .collect()
        })
        .await
        .unwrap()
    }

    /// What the group has not committed yet.
    pub(crate) async fn left(&self) -> u64 {
        let brokers = self.brokers.clone();
        let topics = [self.topic.clone(), self.retry_topic()];
        tokio::task::spawn_blocking(move || {
            let client: BaseConsumer = config(&brokers).set("group.id", "stock").create().unwrap();
            let mut list = TopicPartitionList::new();
            for topic in topics {
                let partitions = if topic.ends_with(".retry") { 1 } else { PARTITIONS };
                list.add_partition_range(&topic, 0, partitions - 1);
            }
            let committed = client.committed_offsets(list, PATIENCE).unwrap();
            let behind = committed.elements().into_iter().map(|element| {
                let (low, high) =
                    client.fetch_watermarks(element.topic(), element.partition(), PATIENCE).unwrap();
                let done = match element.offset() {
                    Offset::Offset(n) => n,
                    _ => low,
                };
                u64::try_from(high - done).unwrap()
            });
            behind.sum()
        })
        .await
        .unwrap()
    }
}

/// A quick group, so that a member that was killed is missed soon.
pub(crate) fn broker(brokers: &str, topic: &str) -> Kafka {
    Kafka::new(brokers, topic)
        .retry_topic(format!("{topic}.retry"))
        .dead_letter(format!("{topic}.dead"))
        .set("session.timeout.ms", "6000")
        .set("auto.commit.interval.ms", "200")
}

/// For consumers that are killed one after the other: a mock cluster forgets them soon, which a real one does not allow.
/// But it lets the first of a group wait for three seconds, which must not be the end of it.
pub(crate) fn hurried(brokers: &str, topic: &str) -> Kafka {
    let broker = broker(brokers, topic);
    match std::env::var_os(GIVEN) {
        Some(_) => broker,
        None => broker.set("session.timeout.ms", "4000").set("heartbeat.interval.ms", "500"),
    }
}

fn config(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    config
}

fn read_all(brokers: &str, topic: &str) -> Vec<Dead> {
    read_partition(brokers, topic, 0, |message| Dead {
        reason: header(message, "onlyonce-reason").unwrap_or_default(),
        detail: header(message, "onlyonce-detail").unwrap_or_default(),
        payload: String::from_utf8(message.payload().unwrap().to_vec()).unwrap(),
        id: header(message, "onlyonce-message-id"),
        record: header(message, "onlyonce-record"),
    })
}

fn header(message: &BorrowedMessage<'_>, name: &str) -> Option<String> {
    let mut headers = message.headers().into_iter().flat_map(Headers::iter);
    let value = headers.find(|header| header.key == name)?.value?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// All messages of a partition, in their order.
fn read_partition<T>(
    brokers: &str,
    topic: &str,
    partition: i32,
    read: impl Fn(&BorrowedMessage<'_>) -> T,
) -> Vec<T> {
    let reader: BaseConsumer = config(brokers).set("group.id", "reader").create().unwrap();
    let (low, high) = reader.fetch_watermarks(topic, partition, PATIENCE).unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(low)).unwrap();
    reader.assign(&list).unwrap();
    let mut found = Vec::new();
    while (found.len() as i64) < high - low {
        let message = reader.poll(PATIENCE).unwrap().unwrap();
        found.push(read(&message));
    }
    found
}
