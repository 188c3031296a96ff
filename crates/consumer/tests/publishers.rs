//! The sending side: what a publisher says is published is there, and in its order.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{self, stream};
use common::{KafkaStage, RabbitStage, consumer, engine, record, soon, stop, unique, until, url_in};
use onlyonce_consumer::{Job, KEY_HEADER, KafkaPublisher, Nats, NatsPublisher, RabbitPublisher};
use onlyonce_sql::SqliteStore;
use onlyonce_sql::outbox::{Event, Outbox, Relay};
use onlyonce_testkit::Ledger;
use tokio::task::JoinSet;

const NONE: [(&str, &str); 0] = [];

/// A stream that takes several topics, and how many messages are in it.
struct Shared {
    url: String,
    name: String,
    jet: jetstream::Context,
}

impl Shared {
    async fn new() -> Self {
        let (url, name) = (url_in("ONLYONCE_TEST_NATS_URL"), unique("shared"));
        let jet = jetstream::new(async_nats::connect(&url).await.unwrap());
        for (name, subject) in
            [(name.clone(), format!("{name}.*")), (format!("{name}-dead"), format!("dead.{name}"))]
        {
            let config = stream::Config { name, subjects: vec![subject], ..stream::Config::default() };
            jet.create_stream(config).await.unwrap();
        }
        Self { url, name, jet }
    }

    fn topic(&self, word: &str) -> String {
        format!("{}.{word}", self.name)
    }

    async fn messages(&self) -> u64 {
        self.jet.get_stream(&self.name).await.unwrap().cached_info().state.messages
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_two_topics_with_one_id_in_one_stream_are_two_events() {
    let shared = Shared::new().await;
    let publisher = NatsPublisher::connect(&shared.url).await.unwrap();
    // Each twice, as after an answer that was lost.
    for topic in ["paid", "shipped", "paid", "shipped"] {
        publisher.publish(&shared.topic(topic), "order-42", NONE, b"42").await.unwrap();
    }
    assert_eq!(shared.messages().await, 2);
    // And a consumer of both has two effects, though they say the same.
    let (once, ledger) = (engine().await, Ledger::in_memory());
    let seen = ledger.clone();
    let handler = move |job: Job| {
        record(&seen, &job);
        async { Ok(()) }
    };
    let broker = Nats::new(&shared.url, &shared.name).dead_letter(format!("dead.{}", shared.name));
    let consuming = consumer(&once, handler).start(broker).await.unwrap();
    until(&consuming, |stats| stats.done == 2).await;
    stop(consuming).await;
    assert_eq!(ledger.count("42").unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_event_under_an_id_that_the_stream_has_is_not_said_to_be_published() {
    let shared = Shared::new().await;
    let publisher = NatsPublisher::connect(&shared.url).await.unwrap();
    let topic = shared.topic("paid");
    publisher.publish(&topic, "1", NONE, b"first").await.unwrap();
    let error = publisher.publish(&topic, "1", NONE, b"second").await.unwrap_err();
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(why.contains("another message under this id"), "{why}");
    // The longest names there are do not become one either.
    let long = |end: &str| format!("{}{end}", "i".repeat(254));
    for id in [long("a"), long("b"), long("a")] {
        publisher.publish(&topic, &id, NONE, id.as_bytes()).await.unwrap();
    }
    assert_eq!(shared.messages().await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_not_be_sent_is_an_error_and_no_panic() {
    let shared = Shared::new().await;
    let (nats, rabbit) = (
        NatsPublisher::connect(&shared.url).await.unwrap(),
        RabbitPublisher::new(url_in("ONLYONCE_TEST_AMQP_URL"), ""),
    );
    let stage = KafkaStage::new(&unique("orders")).await;
    let kafka = KafkaPublisher::new(&stage.brokers).unwrap();
    let topic = shared.topic("paid");
    for header in [("my header", "x"), ("", "x"), ("a:b", "x"), ("line", "a\nb"), ("line", "a\rb")] {
        let published = nats.publish(&topic, "1", [header], b"x").await;
        // An empty name is only a header that is not there.
        assert_eq!(published.is_err(), !header.0.is_empty(), "{header:?}");
    }
    assert!(nats.publish(&topic, "a\nb", NONE, b"x").await.is_err());
    for subject in ["", "two words", "a..b", "line\r\nPUB x 0"] {
        assert!(nats.publish(subject, "1", NONE, b"x").await.is_err(), "{subject:?}");
    }
    assert!(kafka.publish(&stage.topic, "1", [("nul\0", "x")], b"x").await.is_err());
    assert!(kafka.publish("nul\0", "1", NONE, b"x").await.is_err());
    let long = "x".repeat(256);
    assert!(rabbit.publish("queue", "1", [(long.as_str(), "x")], b"x").await.is_err());
    assert!(rabbit.publish("queue", &long, NONE, b"x").await.is_err());
    assert!(rabbit.publish(&long, "1", NONE, b"x").await.is_err());
    // And all three go on.
    nats.publish(&topic, "2", NONE, b"x").await.unwrap();
    kafka.publish(&stage.topic, "2", NONE, b"x").await.unwrap();
    assert!(rabbit.publish("no such queue", "2", NONE, b"x").await.is_err());
}

/// A message that came back is told by an answer of its own kind, which must not be taken for that of another message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_messages_at_once_each_hears_its_own_fate() {
    const SENDERS: u64 = 100;
    const EACH: u64 = 100;
    let stage = RabbitStage::new(&url_in("ONLYONCE_TEST_AMQP_URL"), &unique("orders")).await;
    let publisher = Arc::new(RabbitPublisher::new(&stage.url, ""));
    let mut senders = JoinSet::new();
    for sender in 0..SENDERS {
        let lost = sender % 20 == 0;
        let topic = if lost { unique("nowhere") } else { stage.queue.clone() };
        let publisher = Arc::clone(&publisher);
        senders.spawn(async move {
            let mut wrong = 0;
            for n in 0..EACH {
                let told = publisher.publish(&topic, &format!("{sender}-{n}"), NONE, b"x").await;
                wrong += u64::from(told.is_err() != lost);
            }
            (lost, wrong)
        });
    }
    for (lost, wrong) in soon("say what became of them", senders.join_all()).await {
        assert_eq!(wrong, 0, "of {EACH} messages whose fate is to be lost: {lost}");
    }
    assert_eq!(stage.left().await, SENDERS * EACH * 19 / 20);
}

/// One that was dropped half-way, or whose exchange is not there, tells nothing about the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_was_dropped_or_refused_half_way_tells_nothing_about_the_next() {
    let stage = RabbitStage::new(&url_in("ONLYONCE_TEST_AMQP_URL"), &unique("orders")).await;
    let publisher = RabbitPublisher::new(&stage.url, "");
    let nowhere = unique("nowhere");
    publisher.publish(&stage.queue, "first", NONE, b"x").await.unwrap();
    for n in 0..200_u64 {
        // Dropped at every point of its way to nowhere.
        let dropped = publisher.publish(&nowhere, "dropped", NONE, b"x");
        let _ = tokio::time::timeout(Duration::from_micros(n * 10), dropped).await;
        publisher.publish(&stage.queue, "next", NONE, b"x").await.unwrap();
        let error = publisher.publish(&nowhere, "nowhere", NONE, b"x").await.unwrap_err();
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains("no queue is bound"), "{why}");
    }
    assert_eq!(stage.left().await, 201);
}

/// From the transaction to the partition: what is behind in its key is behind in its partition.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_one_key_are_in_one_partition_in_the_order_in_which_they_were_written() {
    assert_eq!(KEY_HEADER, onlyonce_sql::outbox::KEY_HEADER);
    let stage = KafkaStage::new(&unique("orders")).await;
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", directory.path().join("shop.db").display());
    let store = SqliteStore::builder(&url).migrate().open().await.unwrap();
    let outbox = Outbox::new(store.pool().clone());
    outbox.migrate().await.unwrap();
    let keys: Vec<String> = (0..6).map(|n| format!("order-{n}")).collect();
    let id = |n: u32| format!("{n:02}");
    for n in 0..12 {
        for key in &keys {
            let mut tx = store.pool().begin().await.unwrap();
            outbox.put(&mut tx, &Event::new(&stage.topic, "x").id(id(n)).key(key)).await.unwrap();
            tx.commit().await.unwrap();
        }
    }
    let publisher = KafkaPublisher::new(&stage.brokers).unwrap();
    let relays: Vec<_> = (0..2)
        .map(|_| {
            let publisher = publisher.clone();
            let relay = Relay::new(outbox.clone(), move |event: Event| {
                let publisher = publisher.clone();
                async move {
                    let id = event.message_id();
                    Ok(publisher.publish(event.topic(), id, event.headers(), event.payload()).await?)
                }
            });
            relay.batch(10).every(Duration::from_millis(20)).start()
        })
        .collect();
    let through = async {
        while outbox.waiting().await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon("take what is in the outbox", through).await;
    for relay in relays {
        relay.shutdown().await;
    }
    let mut found: BTreeMap<(String, i32), Vec<String>> = BTreeMap::new();
    for (partition, key, id) in stage.stored().await {
        found.entry((key, partition)).or_default().push(id);
    }
    let wanted: Vec<String> = (0..12).map(id).collect();
    assert_eq!(found.len(), keys.len(), "each key in one partition: {:?}", found.keys());
    for ((key, _), ids) in &found {
        assert_eq!(ids, &wanted, "{key}");
    }
    let partitions: std::collections::BTreeSet<i32> = found.keys().map(|(_, partition)| *partition).collect();
    assert!(partitions.len() > 1, "the keys spread");
}
