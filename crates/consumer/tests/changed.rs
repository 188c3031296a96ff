//! What others change on a broker while a consumer runs: streams, exchanges and queues that go and come, and the group.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_nats::HeaderMap;
use common::{
    KafkaStage, NatsStage, RabbitStage, Stage, Trouble, assert_one_each, consumer, engine, names, quick,
    record, start, stop, text, unique, until, until_effects, url_in, writer,
};
use futures_util::future::join_all;
use lapin::options::{
    ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, ExchangeKind};
use onlyonce_consumer::{Job, RabbitMq, Retries};
use onlyonce_testkit::Ledger;
use tokio::sync::Semaphore;

async fn nats() -> NatsStage {
    NatsStage::new(&url_in("ONLYONCE_TEST_NATS_URL"), &unique("orders")).await
}

async fn rabbitmq() -> RabbitStage {
    RabbitStage::new(&url_in("ONLYONCE_TEST_AMQP_URL"), &unique("orders")).await
}

/// Its positions begin at one again, and are those of other messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_made_again_while_a_consumer_runs_loses_no_message() {
    let (stage, once, ledger) = (nats().await, engine().await, Ledger::in_memory());
    let consuming = writer(&once, &ledger).start(stage.broker()).await.unwrap();
    for name in ["old-0", "old-1", "same"] {
        stage.publish(None, name).await;
    }
    until(&consuming, |stats| stats.done == 3).await;
    stage.delete().await;
    stage.make_again().await;
    for name in ["new-0", "new-1", "same", "new-3"] {
        stage.publish(None, name).await;
    }
    until(&consuming, |stats| stats.done == 7).await;
    stop(consuming).await;
    assert_one_each(&ledger, ["old-0", "old-1", "new-0", "new-1", "new-3"].map(str::to_owned));
    assert_eq!(ledger.count("same").unwrap(), 2, "they say the same, but are two");
    assert_eq!(stage.dead().await, []);
    assert_eq!(stage.left().await, 0);
}

/// An ack names a number. The message that had it went with its stream, and another one has it now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ack_of_a_message_whose_stream_is_gone_is_not_taken_for_anothers() {
    let (stage, once, ledger) = (nats().await, engine().await, Ledger::in_memory());
    let (old, new) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let runs = Arc::new(AtomicU32::new(0));
    let (seen, gates, counted) = (ledger.clone(), (Arc::clone(&old), Arc::clone(&new)), Arc::clone(&runs));
    let handler = move |job: Job| {
        let (ledger, (old, new), runs) = (seen.clone(), gates.clone(), Arc::clone(&counted));
        async move {
            record(&ledger, &job);
            if text(&job) == "old" {
                old.acquire().await.unwrap().forget();
                return Ok(());
            }
            if runs.fetch_add(1, Ordering::SeqCst) == 0 {
                new.acquire().await.unwrap().forget();
                return Err(Trouble::DatabaseDown);
            }
            Ok(())
        }
    };
    let consuming = consumer(&once, handler).start(stage.broker()).await.unwrap();
    stage.publish(None, "old").await;
    until_effects(&ledger, 1).await;
    stage.delete().await;
    stage.make_again().await;
    stage.publish(None, "new").await;
    until_effects(&ledger, 2).await;
    // The old one ends while the new one, of the same number, is in hand; and then the new one fails.
    old.add_permits(1);
    until(&consuming, |stats| stats.done + stats.unconfirmed == 1).await;
    new.add_permits(1);
    until(&consuming, |stats| stats.failed == 1 && stats.done == 1).await;
    stop(consuming).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert_eq!(stage.left().await, 0);
}

/// What tells the server which stream a message is for must not follow it to the dead letter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_mean_something_to_the_server_do_not_keep_a_message_from_the_dead_letter() {
    let (stage, once) = (nats().await, engine().await);
    let retries = Retries { limit: 1, ..quick() };
    let fails = consumer(&once, |_| async { Err(Trouble::DatabaseDown) }).retries(retries);
    let consuming = fails.start(stage.broker()).await.unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Expected-Stream", stage.name.as_str());
    headers.insert("ce-id", "m");
    headers.insert("tenant", "7");
    stage.publish_with(headers, "m").await;
    until(&consuming, |stats| stats.dead == 1).await;
    stop(consuming).await;
    let dead = stage.dead().await;
    assert_eq!((dead.len(), dead[0].payload.as_str(), dead[0].id.as_deref()), (1, "m", Some("m")));
}

/// The client keeps a pause beyond the partition's going and coming.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_was_full_when_the_group_changed_goes_on() {
    const MESSAGES: u32 = 1_200;
    let stage = Stage::Kafka(KafkaStage::new(&unique("orders")).await);
    let (once, ledger, gate) = (engine().await, Ledger::in_memory(), Arc::new(Semaphore::new(0)));
    let all: Vec<String> = names(MESSAGES).collect();
    for some in all.chunks(100) {
        join_all(some.iter().map(|name| stage.publish(Some(name), name))).await;
    }
    let (seen, turn) = (ledger.clone(), Arc::clone(&gate));
    let handler = move |job: Job| {
        let (ledger, turn) = (seen.clone(), Arc::clone(&turn));
        async move {
            drop(turn.acquire().await.unwrap());
            record(&ledger, &job);
            Ok(())
        }
    };
    // It takes in what it can, and pauses its partitions: 300 messages each.
    let first = start(consumer(&once, handler.clone()), &stage).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    // The other one comes, and goes again: twice the group divides its partitions.
    let second = start(consumer(&once, handler), &stage).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    gate.add_permits(1);
    stop(second).await;
    until_effects(&ledger, MESSAGES as usize).await;
    stop(first).await;
    assert_one_each(&ledger, all);
}

/// A name that is not UTF-8 makes the client panic where it is read: after it was handed over, and before it is anywhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_headers_can_not_be_read_goes_to_the_dead_letter_and_is_not_skipped() {
    let (stage, once, ledger) =
        (KafkaStage::new(&unique("orders")).await, engine().await, Ledger::in_memory());
    let all: Vec<String> = names(8).collect();
    for name in &all[..4] {
        stage.publish(Some(name), name).await;
    }
    stage.publish_garbled("garbled").await;
    for name in &all[4..] {
        stage.publish(Some(name), name).await;
    }
    let consuming = writer(&once, &ledger).start(stage.broker()).await.unwrap();
    until(&consuming, |stats| stats.done == 8 && stats.dead == 1).await;
    stop(consuming).await;
    assert_one_each(&ledger, all);
    let dead = stage.dead().await;
    assert_eq!(dead.iter().map(|dead| dead.payload.as_str()).collect::<Vec<_>>(), ["garbled"]);
    assert_eq!((dead[0].reason.as_str(), dead[0].id.as_deref()), ("headers", Some("garbled")));
    assert_eq!(stage.left().await, 0);
}

/// The broker drops what goes in a circle of queues: a message that died in its queue before must not seem to do so when its pause is
/// over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_had_died_before_comes_back_from_its_pause() {
    let (stage, once, ledger) = (rabbitmq().await, engine().await, Ledger::in_memory());
    let text = |text: &str| AMQPValue::LongString(text.into());
    let mut death = FieldTable::default();
    for (name, value) in [("queue", stage.queue.as_str()), ("reason", "expired"), ("exchange", "")] {
        death.insert(name.into(), text(value));
    }
    death.insert("count".into(), AMQPValue::LongLongInt(1));
    death.insert("routing-keys".into(), AMQPValue::FieldArray(vec![text(&stage.queue)].into()));
    let mut headers = FieldTable::default();
    headers.insert("x-death".into(), AMQPValue::FieldArray(vec![AMQPValue::FieldTable(death)].into()));
    for (name, value) in [("queue", stage.queue.as_str()), ("reason", "expired"), ("exchange", "")] {
        headers.insert(format!("x-first-death-{name}").into(), text(value));
    }
    let properties = BasicProperties::default().with_message_id("m".into()).with_headers(headers);
    stage.publish_with(properties, "m").await;
    let consuming = consumer(&once, fails_once(&ledger)).start(stage.broker()).await.unwrap();
    until(&consuming, |stats| stats.done == 1).await;
    stop(consuming).await;
    assert_eq!(ledger.count("m").unwrap(), 2);
}

/// A handler that fails once for each message, so that each has to wait once.
fn fails_once(
    ledger: &Ledger,
) -> impl Fn(Job) -> std::future::Ready<Result<(), Trouble>> + Clone + Send + Sync + 'static {
    let ledger = ledger.clone();
    move |job: Job| {
        record(&ledger, &job);
        let first = ledger.count(&text(&job)).unwrap() == 1;
        std::future::ready(if first { Err(Trouble::DatabaseDown) } else { Ok(()) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_exchange_that_is_deleted_stops_nothing_else_and_is_used_again_when_it_is_back() {
    let (stage, once, ledger) = (rabbitmq().await, engine().await, Ledger::in_memory());
    let exchange = unique("dead");
    let make = async || {
        let (options, none) = (ExchangeDeclareOptions::default(), FieldTable::default());
        let name = || exchange.as_str().into();
        stage.channel.exchange_declare(name(), ExchangeKind::Direct, options, none.clone()).await.unwrap();
        let queue = stage.dead_queue().into();
        stage
            .channel
            .queue_bind(queue, name(), "poison".into(), QueueBindOptions::default(), none)
            .await
            .unwrap();
    };
    make().await;
    let once_more = fails_once(&ledger);
    let handler = move |job: Job| {
        let bad = text(&job).starts_with("bad");
        let handled = once_more(job);
        async move { if bad { Err(Trouble::DatabaseDown) } else { handled.await } }
    };
    let broker = RabbitMq::new(&stage.url, &stage.queue).dead_letter_exchange(&exchange, "poison");
    let retries = Retries { limit: 2, ..quick() };
    let consuming = consumer(&once, handler).retries(retries).start(broker).await.unwrap();
    stage.channel.exchange_delete(exchange.as_str().into(), ExchangeDeleteOptions::default()).await.unwrap();
    stage.publish(Some("bad-1"), "bad-1").await;
    until_effects(&ledger, 2).await;
    // Its dead letter has failed, or is about to; others wait and come back as ever.
    for name in names(5) {
        stage.publish(Some(&name), &name).await;
    }
    until(&consuming, |stats| stats.done == 5).await;
    make().await;
    stage.publish(Some("bad-2"), "bad-2").await;
    until_effects(&ledger, 2 + 10 + 2).await;
    let arrived = async {
        loop {
            if let Some(dead) = stage.dead().await.pop() {
                return dead.payload;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    assert_eq!(common::soon("take the dead letter", arrived).await, "bad-2");
    let stats = consuming.stats();
    stop(consuming).await;
    assert_eq!(stats.unconfirmed, 0, "each was told what to do: {stats:?}");
    assert_eq!(ledger.count("bad-1").unwrap(), 2, "what can't leave is not tried again and again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_queue_that_is_foreign_or_deleted_costs_no_message_its_pause() {
    let (stage, once, ledger) = (rabbitmq().await, engine().await, Ledger::in_memory());
    // The pause is 200 ms, and so its queue that of 256 ms.
    let [next, _] = stage.delay_queues(512);
    for foreign in stage.delay_queues(256) {
        let (durable, none) = (QueueDeclareOptions::durable(), FieldTable::default());
        stage.channel.queue_declare(foreign.into(), durable, none).await.unwrap();
    }
    let consuming = consumer(&once, fails_once(&ledger)).start(stage.broker()).await.unwrap();
    for (n, name) in names(3).enumerate() {
        if n == 2 {
            let options = QueueDeleteOptions::default();
            stage.channel.queue_delete(next.as_str().into(), options).await.unwrap();
        }
        stage.publish(Some(&name), &name).await;
        until(&consuming, |stats| stats.done == n as u64 + 1).await;
    }
    let stats = consuming.stats();
    stop(consuming).await;
    assert_eq!((stats.failed, stats.unconfirmed), (3, 0), "{stats:?}");
}

/// The broker moves what expires in a classic queue at most once: it may be lost on the way. In a quorum queue it stays until its
/// queue has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_wait_in_queues_that_lose_none_and_in_others_where_there_are_none() {
    let (stage, once, ledger) = (rabbitmq().await, engine().await, Ledger::in_memory());
    let [quorum, classic] = stage.delay_queues(256);
    let text = |text: &str| AMQPValue::LongString(text.into());
    let waits = [
        ("x-message-ttl", AMQPValue::LongLongInt(256)),
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text(&stage.queue)),
    ];
    let safely = [
        ("x-queue-type", text("quorum")),
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-overflow", text("reject-publish")),
    ];
    let table = |all: &[(&str, AMQPValue)]| {
        let mut table = FieldTable::default();
        for (name, value) in all {
            table.insert((*name).into(), value.clone());
        }
        table
    };
    let durable = QueueDeclareOptions::durable();
    let declare = async |name: &str, arguments: FieldTable| {
        stage.channel.queue_declare(name.into(), durable, arguments).await.unwrap().message_count()
    };
    // One is there already, as an earlier release made it.
    declare(&classic, table(&waits)).await;
    let run = async |name: &str| {
        let consuming = consumer(&once, fails_once(&ledger)).start(stage.broker()).await.unwrap();
        stage.publish(Some(name), name).await;
        until(&consuming, |stats| stats.done == 1).await;
        let stats = consuming.stats();
        stop(consuming).await;
        assert_eq!((stats.failed, stats.unconfirmed), (1, 0), "{stats:?}");
    };
    run("first").await;
    // It is there, and of this form, or the broker would refuse.
    let passive = QueueDeclareOptions { passive: true, ..durable };
    let found = stage.channel.queue_declare(quorum.as_str().into(), passive, FieldTable::default()).await;
    assert_eq!(found.unwrap().message_count(), 0);
    assert_eq!(declare(&quorum, table(&[waits.clone(), safely].concat())).await, 0);
    // And where that can't be had, the classic one is as good as ever.
    let options = QueueDeleteOptions::default();
    for name in [&quorum, &classic] {
        stage.channel.queue_delete(name.as_str().into(), options).await.unwrap();
    }
    declare(&quorum, FieldTable::default()).await;
    run("second").await;
    assert_eq!(declare(&classic, table(&waits)).await, 0);
}
