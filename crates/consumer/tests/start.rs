//! What is refused or warned about at the start, on the real servers: with a message that says what to do.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::error::Error;
use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::stream;
use common::{KafkaStage, NatsStage, RabbitStage, consumer, engine, unique, url_in};
use onlyonce_consumer::adapter::Connect;
use onlyonce_consumer::{Consumer, Kafka, Nats, RabbitMq, StartError, Warning};
use onlyonce_core::{Idempotency, MemoryStore, OnLapse, Settings};

async fn rabbit() -> RabbitStage {
    RabbitStage::new(&url_in("ONLYONCE_TEST_AMQP_URL"), &unique("start")).await
}

async fn nats() -> NatsStage {
    NatsStage::new(&url_in("ONLYONCE_TEST_NATS_URL"), &unique("start")).await
}

fn idle(once: &Idempotency) -> Consumer {
    consumer(once, |_| async { Ok(()) })
}

async fn refused(broker: impl Connect + 'static) -> StartError {
    match idle(&engine().await).start(broker).await {
        Err(error) => error,
        Ok(consuming) => panic!("it was started: {consuming:?}"),
    }
}

fn says(error: &StartError, words: &[&str]) {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said = format!("{said}: {error}");
        cause = error.source();
    }
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
}

#[tokio::test]
async fn a_queue_without_a_dead_letter_is_refused() {
    let stage = rabbit().await;
    let error = refused(RabbitMq::new(&stage.url, &stage.queue)).await;
    says(&error, &["has no dead letter", "RabbitMq::dead_letter"]);
    let stage = nats().await;
    let error = refused(Nats::new(&stage.url, &stage.name)).await;
    says(&error, &["has no dead letter", "Nats::dead_letter"]);
    let stage = KafkaStage::new(&unique("start")).await;
    let error = refused(Kafka::new(&stage.brokers, &stage.topic)).await;
    says(&error, &["has no dead letter", "Kafka::dead_letter"]);
}

#[tokio::test]
async fn a_dead_letter_that_is_not_there_is_refused() {
    let stage = rabbit().await;
    let error = refused(RabbitMq::new(&stage.url, &stage.queue).dead_letter("nowhere")).await;
    says(&error, &["the dead letter nowhere", "RabbitMq::declare"]);
    assert!(matches!(error, StartError::DeadLetter(_)), "{error:?}");
    let error = refused(RabbitMq::new(&stage.url, &stage.queue).dead_letter_exchange("nowhere", "x")).await;
    says(&error, &["the dead letter nowhere"]);
    let stage = nats().await;
    let error = refused(Nats::new(&stage.url, &stage.name).dead_letter("nowhere")).await;
    says(&error, &["no stream takes the dead letter nowhere", "Nats::declare"]);
}

#[tokio::test]
async fn a_dead_letter_that_leads_back_is_refused() {
    let stage = rabbit().await;
    says(
        &refused(RabbitMq::new(&stage.url, &stage.queue).dead_letter(&stage.queue)).await,
        &["go round for ever"],
    );
    let stage = nats().await;
    says(
        &refused(Nats::new(&stage.url, &stage.name).dead_letter(stage.subject())).await,
        &["go round for ever"],
    );
    let stage = KafkaStage::new(&unique("start")).await;
    says(
        &refused(Kafka::new(&stage.brokers, &stage.topic).dead_letter(&stage.topic)).await,
        &["go round for ever"],
    );
}

#[tokio::test]
async fn a_queue_or_stream_that_is_not_there_is_refused_or_made() {
    let url = url_in("ONLYONCE_TEST_AMQP_URL");
    let (queue, dead) = (unique("made"), unique("made-dead"));
    let error = refused(RabbitMq::new(&url, &queue).dead_letter(&dead)).await;
    says(&error, &[&queue, "RabbitMq::declare"]);
    let made = idle(&engine().await).start(RabbitMq::new(&url, &queue).dead_letter(&dead).declare()).await;
    common::stop(made.unwrap()).await;
    let url = url_in("ONLYONCE_TEST_NATS_URL");
    let name = unique("made");
    let (subject, dead) = (format!("{name}.paid"), format!("dead.{name}"));
    let broker = Nats::new(&url, &name).subject(&subject).dead_letter(&dead);
    says(&refused(broker.clone()).await, &[&name, "Nats::declare"]);
    let made = idle(&engine().await).start(broker.declare()).await;
    common::stop(made.unwrap()).await;
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_an_error_and_not_a_wait() {
    let error = refused(RabbitMq::new("amqp://127.0.0.1:1/%2f", "q").dead_letter("d")).await;
    says(&error, &["the broker can't be used", "connect"]);
    let error = refused(Nats::new("nats://127.0.0.1:1", "s").dead_letter("d")).await;
    says(&error, &["the broker can't be used", "connect"]);
}

#[tokio::test]
async fn a_window_shorter_than_the_retention_is_warned_about_and_refused_if_strict() {
    let stage = nats().await;
    let short = Settings { retain: Duration::from_secs(60), ..Settings::default() };
    let once = Idempotency::builder(MemoryStore::new()).settings(short).build().unwrap();
    let idle = || {
        Consumer::new(once.clone(), "stock", "decrement", |_| async {
            Ok::<(), std::convert::Infallible>(())
        })
    };
    let consuming = idle().start(stage.broker()).await.unwrap();
    let hour = Duration::from_secs(3600);
    let warning = Warning::ShortWindow { retain: Duration::from_secs(60), horizon: Some(hour) };
    assert_eq!(consuming.warnings(), [warning]);
    common::stop(consuming).await;
    let error = idle().strict().start(stage.broker()).await.unwrap_err();
    says(&error, &["strict", "records are kept for 60s", "3600s", "raise Settings::retain"]);
    // RabbitMQ does not know how long a sender may try again: somebody has to say so.
    let stage = rabbit().await;
    let consuming = idle().start(stage.broker()).await.unwrap();
    assert_eq!(consuming.warnings(), [Warning::UnknownHorizon]);
    common::stop(consuming).await;
    let consuming = idle().replay_horizon(Duration::from_secs(50)).start(stage.broker()).await.unwrap();
    assert_eq!(consuming.warnings(), []);
    common::stop(consuming).await;
}

#[tokio::test]
async fn a_handler_that_may_run_longer_than_the_broker_waits_is_warned_about() {
    let stage = rabbit().await;
    let broker = stage.broker().consumer_timeout(Duration::from_secs(60));
    let consuming = idle(&engine().await).start(broker).await.unwrap();
    let said = consuming.warnings()[0].to_string();
    assert!(said.contains("lower Settings::max_run"), "{said}");
    common::stop(consuming).await;
}

#[tokio::test]
async fn a_durable_consumer_that_would_drop_messages_is_refused() {
    let stage = nats().await;
    let stream = stage.jet.get_stream(&stage.name).await.unwrap();
    let config = pull::Config {
        durable_name: Some("stock-decrement".into()),
        filter_subject: stage.subject(),
        max_deliver: 5,
        ..pull::Config::default()
    };
    stream.create_consumer(config).await.unwrap();
    says(&refused(stage.broker()).await, &["gives up after 5 deliveries", "max_deliver to -1"]);
}

#[tokio::test]
async fn a_stream_that_keeps_messages_for_ever_is_warned_about() {
    let stage = nats().await;
    let name = unique("ever");
    let config =
        stream::Config { name: name.clone(), subjects: vec![name.clone()], ..stream::Config::default() };
    stage.jet.create_stream(config).await.unwrap();
    let once = engine().await;
    let idle = Consumer::new(once, "g", "h", |_| async { Ok::<(), std::convert::Infallible>(()) });
    let broker = Nats::new(&stage.url, &name).dead_letter(format!("dead.{}", stage.name));
    let consuming = idle.start(broker).await.unwrap();
    assert!(matches!(consuming.warnings(), [Warning::ShortWindow { horizon: None, .. }]));
    common::stop(consuming).await;
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused() {
    let stage = rabbit().await;
    let once = engine().await;
    let error = idle(&once).concurrency(0).start(stage.broker()).await.unwrap_err();
    says(&error, &["concurrency", "is 0"]);
    let ask = Settings { on_lapse: OnLapse::Ask { after: Duration::from_secs(60) }, ..Settings::default() };
    let error = idle(&once.with_settings(ask).unwrap()).start(stage.broker()).await.unwrap_err();
    says(&error, &["Consumer::recover"]);
}
