//! What is refused or warned about at the start, on the real servers: with a message that says what to do.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::error::Error;
use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::stream;
use common::{KafkaStage, NatsStage, RabbitStage, consumer, engine, stop, unique, url_in};
use onlyonce_consumer::adapter::Connect;
use onlyonce_consumer::{Consumer, Kafka, Nats, RabbitMq, StartError, Warning};
use onlyonce_core::{Idempotency, MemoryStore, OnLapse, Settings};

fn idle(once: &Idempotency) -> Consumer {
    consumer(once, |_| async { Ok(()) })
}

async fn refused(broker: impl Connect + 'static) -> StartError {
    match idle(&engine().await).start(broker).await {
        Err(error) => error,
        Ok(consuming) => panic!("it was started: {consuming:?}"),
    }
}

/// It has no dead letter at all, and is told so.
async fn refused_without_dead_letter(broker: impl Connect + 'static, do_this: &str) {
    let error = refused(broker).await;
    assert!(matches!(error, StartError::DeadLetter(_)), "{error:?}");
    says(&error, &["has no dead letter", do_this]);
}

async fn refused_for_its_dead_letter(broker: impl Connect + 'static, words: &[&str]) {
    let error = refused(broker).await;
    assert!(matches!(error, StartError::DeadLetter(_)), "{error:?}");
    says(&error, words);
}

async fn refused_for_its_source(broker: impl Connect + 'static, words: &[&str]) {
    let error = refused(broker).await;
    assert!(matches!(error, StartError::Source(_)), "{error:?}");
    says(&error, words);
}

async fn is_made(broker: impl Connect + 'static) {
    stop(idle(&engine().await).start(broker).await.unwrap()).await;
}

async fn not_there(broker: impl Connect + 'static, words: &[&str]) {
    let error = refused(broker).await;
    assert!(matches!(error, StartError::Broker(_)), "{error:?}");
    says(&error, &["the broker can't be used"]);
    says(&error, words);
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

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Keeps its records for a minute, and says nothing about how long messages come back.
fn forgetful() -> Consumer {
    let short = Settings { retain: MINUTE, ..Settings::default() };
    let once = Idempotency::builder(MemoryStore::new()).settings(short).build().unwrap();
    Consumer::new(once, "stock", "decrement", |_| async { Ok::<(), std::convert::Infallible>(()) })
}

async fn warnings(consumer: Consumer, broker: impl Connect + 'static) -> Vec<Warning> {
    let consuming = consumer.start(broker).await.unwrap();
    let warnings = consuming.warnings().to_vec();
    stop(consuming).await;
    warnings
}

/// Records that are kept for a minute, messages that come back for an hour: a warning, and an error if it is strict.
async fn has_a_short_window(consumer: impl Fn() -> Consumer, broker: impl Connect + Clone + 'static) {
    let warning = Warning::ShortWindow { retain: MINUTE, horizon: Some(HOUR) };
    assert_eq!(warnings(consumer(), broker.clone()).await, [warning]);
    let error = consumer().strict().start(broker).await.unwrap_err();
    says(&error, &["strict", "records are kept for 60s", "3600s", "raise Settings::retain"]);
}

/// Nobody knows how long messages come back, until somebody says so.
async fn has_an_unknown_window(broker: impl Connect + Clone + 'static) {
    assert_eq!(warnings(forgetful(), broker.clone()).await, [Warning::UnknownHorizon]);
    assert_eq!(warnings(forgetful().replay_horizon(MINUTE), broker).await, []);
}

mod rabbitmq {
    use super::*;

    async fn stage() -> RabbitStage {
        RabbitStage::new(&url_in("ONLYONCE_TEST_AMQP_URL"), &unique("start")).await
    }

    #[tokio::test]
    async fn a_queue_without_a_dead_letter_is_refused() {
        let stage = stage().await;
        refused_without_dead_letter(RabbitMq::new(&stage.url, &stage.queue), "RabbitMq::dead_letter").await;
    }

    #[tokio::test]
    async fn a_dead_letter_that_is_not_there_is_refused() {
        let stage = stage().await;
        let queue = RabbitMq::new(&stage.url, &stage.queue);
        let words = ["the dead letter nowhere", "NOT_FOUND", "RabbitMq::declare"];
        refused_for_its_dead_letter(queue.clone().dead_letter("nowhere"), &words).await;
        refused_for_its_dead_letter(queue.dead_letter_exchange("nowhere", "x"), &words).await;
    }

    #[tokio::test]
    async fn a_dead_letter_that_leads_back_is_refused() {
        let stage = stage().await;
        let broker = RabbitMq::new(&stage.url, &stage.queue).dead_letter(&stage.queue);
        refused_for_its_dead_letter(broker, &["go round for ever"]).await;
    }

    #[tokio::test]
    async fn a_queue_that_is_not_there_is_refused_or_made() {
        let (queue, dead) = (unique("made"), unique("made-dead"));
        let broker = RabbitMq::new(url_in("ONLYONCE_TEST_AMQP_URL"), &queue).dead_letter(&dead);
        refused_for_its_source(broker.clone(), &[&queue, "NOT_FOUND", "RabbitMq::declare"]).await;
        is_made(broker.declare()).await;
    }

    #[tokio::test]
    async fn a_broker_that_is_not_there_is_an_error_and_not_a_wait() {
        not_there(RabbitMq::new("amqp://127.0.0.1:1/%2f", "q").dead_letter("d"), &["connect"]).await;
    }

    #[tokio::test]
    async fn a_window_shorter_than_the_replay_horizon_is_warned_about_and_refused_if_strict() {
        has_a_short_window(|| forgetful().replay_horizon(HOUR), stage().await.broker()).await;
    }

    /// It does not know how long a sender may try again.
    #[tokio::test]
    async fn a_replay_horizon_that_nobody_knows_is_warned_about() {
        has_an_unknown_window(stage().await.broker()).await;
    }

    #[tokio::test]
    async fn a_handler_that_may_run_longer_than_the_broker_waits_is_warned_about() {
        let broker = stage().await.broker().consumer_timeout(MINUTE);
        let said = warnings(idle(&engine().await), broker).await[0].to_string();
        assert!(said.contains("lower Settings::max_run"), "{said}");
    }

    #[tokio::test]
    async fn settings_that_make_no_sense_are_refused() {
        let (stage, once) = (stage().await, engine().await);
        let error = idle(&once).concurrency(0).start(stage.broker()).await.unwrap_err();
        says(&error, &["concurrency", "is 0"]);
        let ask = Settings { on_lapse: OnLapse::Ask { after: MINUTE }, ..Settings::default() };
        let error = idle(&once.with_settings(ask).unwrap()).start(stage.broker()).await.unwrap_err();
        says(&error, &["Consumer::recover"]);
    }
}

mod nats {
    use super::*;

    async fn stage() -> NatsStage {
        NatsStage::new(&url_in("ONLYONCE_TEST_NATS_URL"), &unique("start")).await
    }

    #[tokio::test]
    async fn a_stream_without_a_dead_letter_is_refused() {
        let stage = stage().await;
        refused_without_dead_letter(Nats::new(&stage.url, &stage.name), "Nats::dead_letter").await;
    }

    #[tokio::test]
    async fn a_dead_letter_that_is_not_there_is_refused() {
        let stage = stage().await;
        let broker = Nats::new(&stage.url, &stage.name).dead_letter("nowhere");
        let words = ["no stream takes the dead letter nowhere", "Nats::declare"];
        refused_for_its_dead_letter(broker, &words).await;
    }

    #[tokio::test]
    async fn a_dead_letter_that_leads_back_is_refused() {
        let stage = stage().await;
        let broker = Nats::new(&stage.url, &stage.name).dead_letter(stage.subject());
        refused_for_its_dead_letter(broker, &["go round for ever"]).await;
    }

    #[tokio::test]
    async fn a_stream_that_is_not_there_is_refused_or_made() {
        let name = unique("made");
        let broker = super::common::nats::broker(&url_in("ONLYONCE_TEST_NATS_URL"), &name);
        refused_for_its_source(broker.clone(), &[&name, "stream not found", "Nats::declare"]).await;
        is_made(broker.declare()).await;
    }

    #[tokio::test]
    async fn a_broker_that_is_not_there_is_an_error_and_not_a_wait() {
        not_there(Nats::new("nats://127.0.0.1:1", "s").dead_letter("d"), &["connect"]).await;
    }

    /// The stream keeps its messages for an hour.
    #[tokio::test]
    async fn a_window_shorter_than_the_retention_is_warned_about_and_refused_if_strict() {
        has_a_short_window(forgetful, stage().await.broker()).await;
    }

    #[tokio::test]
    async fn a_stream_that_keeps_messages_for_ever_is_warned_about() {
        let (stage, name) = (stage().await, unique("ever"));
        let config =
            stream::Config { name: name.clone(), subjects: vec![name.clone()], ..stream::Config::default() };
        stage.jet.create_stream(config).await.unwrap();
        let broker = Nats::new(&stage.url, &name).dead_letter(format!("dead.{}", stage.name));
        let warnings = warnings(forgetful(), broker).await;
        assert_eq!(warnings, [Warning::ShortWindow { retain: MINUTE, horizon: None }]);
    }

    #[tokio::test]
    async fn a_durable_consumer_that_would_drop_messages_is_refused() {
        let stage = stage().await;
        let stream = stage.jet.get_stream(&stage.name).await.unwrap();
        let config = pull::Config {
            durable_name: Some("stock-decrement".into()),
            filter_subject: stage.subject(),
            max_deliver: 5,
            ..pull::Config::default()
        };
        stream.create_consumer(config).await.unwrap();
        let words = ["gives up after 5 deliveries", "max_deliver to -1"];
        refused_for_its_source(stage.broker(), &words).await;
    }
}

mod kafka {
    use super::*;

    async fn stage() -> KafkaStage {
        KafkaStage::new(&unique("start")).await
    }

    #[tokio::test]
    async fn a_topic_without_a_dead_letter_is_refused() {
        let stage = stage().await;
        refused_without_dead_letter(Kafka::new(&stage.brokers, &stage.topic), "Kafka::dead_letter").await;
    }

    #[tokio::test]
    async fn a_dead_letter_that_is_not_there_is_refused() {
        let stage = stage().await;
        let broker = stage.broker().dead_letter("nowhere");
        refused_for_its_dead_letter(broker, &["the dead letter nowhere", "make it first"]).await;
    }

    #[tokio::test]
    async fn a_dead_letter_that_leads_back_is_refused() {
        let stage = stage().await;
        for back in [stage.topic.clone(), stage.retry_topic()] {
            refused_for_its_dead_letter(stage.broker().dead_letter(back), &["go round for ever"]).await;
        }
    }

    #[tokio::test]
    async fn a_topic_or_retry_topic_that_is_not_there_is_refused() {
        let (stage, missing) = (stage().await, unique("missing"));
        let broker = Kafka::new(&stage.brokers, &missing).dead_letter(format!("{}.dead", stage.topic));
        refused_for_its_source(broker, &[&missing, "make it first"]).await;
        refused_for_its_source(stage.broker().retry_topic(&missing), &[&missing, "make it first"]).await;
    }

    #[tokio::test]
    async fn a_broker_that_is_not_there_is_an_error_and_not_a_wait() {
        not_there(Kafka::new("127.0.0.1:1", "t").dead_letter("d"), &["look for a topic"]).await;
    }

    #[tokio::test]
    async fn a_window_shorter_than_the_replay_horizon_is_warned_about_and_refused_if_strict() {
        let stage = stage().await;
        has_a_short_window(|| forgetful().replay_horizon(HOUR), stage.broker()).await;
    }

    /// The mock cluster does not say how long a topic keeps its messages.
    #[tokio::test]
    async fn a_retention_that_the_broker_does_not_tell_is_warned_about() {
        let stage = KafkaStage::mock(&unique("start")).await;
        has_an_unknown_window(stage.broker()).await;
    }
}
