//! What consumers must survive, on every broker: the same scenarios, each with its own queue on the real server.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use common::{
    Stage, Trouble, assert_one_each, consumer, engine, engine_at, names, quick, record, start, stop, unique,
    until, until_effects, url_in, writer,
};
use onlyonce_consumer::adapter::{BrokerError, Connect, Connected, Delivery, Note, Plan, Source};
use onlyonce_consumer::{Action, Batch, Broker, Consumer, Consuming, Job, Message, Retries, StartError};
use onlyonce_core::{Answer, Drained, OnLapse, RecordId, Recovery, Resolution, Settings, StateKind};
use onlyonce_testkit::{FaultProxy, Ledger};
use tokio::sync::Semaphore;

macro_rules! on {
    ($broker:ident: $($name:ident),* $(,)?) => {
        mod $broker {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(super::Stage::$broker().await).await }
        )*}
    };
}

macro_rules! on_every_broker {
    ($($name:ident),* $(,)?) => {
        // Kafka's mock cluster tells its clients its own address, so that no proxy can stand between.
        on!(rabbitmq: a_lost_connection_in_the_middle_loses_nothing,
            a_broker_that_falls_silent_does_not_hold_up_the_end,
            a_message_with_no_id_and_no_extractor_goes_to_the_dead_letter_with_the_reason, $($name),*);
        on!(nats: a_lost_connection_in_the_middle_loses_nothing,
            a_broker_that_falls_silent_does_not_hold_up_the_end,
            a_message_with_no_id_and_no_extractor_is_known_by_its_position, $($name),*);
        on!(kafka: a_rebalance_in_the_middle_loses_nothing,
            a_message_with_no_id_and_no_extractor_is_known_by_its_position, $($name),*);
    };
}

on_every_broker!(
    a_message_delivered_again_after_its_effect_and_before_its_ack_has_no_second_effect,
    two_consumers_in_one_group_have_one_effect_for_messages_published_twice,
    a_message_in_flight_elsewhere_is_delayed_without_a_hot_loop,
    a_business_error_is_on_record_and_the_duplicate_does_not_run,
    a_system_error_is_tried_again_with_pauses,
    an_unknown_outcome_is_parked_shown_and_can_be_resolved,
    poison_among_good_messages_goes_to_the_dead_letter_with_its_reason,
    an_extractor_finds_the_id_and_one_that_is_too_long_goes_to_the_dead_letter,
    long_work_is_delivered_once,
    a_store_that_is_down_for_a_while_loses_nothing,
    a_shutdown_drains_and_gives_the_rest_back,
    a_batch_has_a_result_for_each_message,
    a_panic_is_an_unknown_outcome_and_stops_nobody_else,
    a_panic_of_the_hook_that_recovers_leaves_its_message_in_nobodys_hands,
    a_message_twice_in_one_batch_waits_for_nobody,
);

async fn publish_twice(stage: &Stage, n: u32) {
    for _ in 0..2 {
        for name in names(n) {
            stage.publish(Some(&name), &name).await;
        }
        // Longer than the window in which NATS would drop the second by itself.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

async fn a_message_delivered_again_after_its_effect_and_before_its_ack_has_no_second_effect(stage: Stage) {
    let (once, ledger) = (engine().await, Ledger::in_memory());
    stage.publish(Some("m"), "m").await;
    let deaf = writer(&once, &ledger).start(NeverActs(stage.broker())).await.unwrap();
    until(&deaf, |stats| stats.unconfirmed >= 1).await;
    stop(deaf).await;
    let heard = start(writer(&once, &ledger), &stage).await;
    until(&heard, |stats| stats.duplicates == 1).await;
    stop(heard).await;
    assert_eq!(ledger.count("m").unwrap(), 1);
    assert_eq!(stage.left().await, 0);
}

async fn two_consumers_in_one_group_have_one_effect_for_messages_published_twice(stage: Stage) {
    let (once, ledger) = (engine().await, Ledger::in_memory());
    let first = start(writer(&once, &ledger).concurrency(4), &stage).await;
    let second = start(writer(&once, &ledger).concurrency(4), &stage).await;
    // Until both have their share: a group takes a while to divide its partitions.
    let mut warm = Vec::new();
    while first.stats().done == 0 || second.stats().done == 0 {
        assert!(warm.len() < 600, "one of them has nothing to do: {first:?} {second:?}");
        warm.push(format!("warm-{}", warm.len()));
        stage.publish(warm.last().map(String::as_str), &warm[warm.len() - 1]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    publish_twice(&stage, 40).await;
    let all = 40 + warm.len() as u64;
    for _ in 0..600 {
        if first.stats().done + second.stats().done == all && stage.left().await == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let done = first.stats().done + second.stats().done;
    stop(first).await;
    stop(second).await;
    assert_one_each(&ledger, names(40).chain(warm));
    assert_eq!(done, all);
    assert_eq!(stage.left().await, 0);
}

async fn a_message_in_flight_elsewhere_is_delayed_without_a_hot_loop(stage: Stage) {
    let (once, ledger, gate) = (engine().await, Ledger::in_memory(), Arc::new(Semaphore::new(0)));
    let (seen, turn) = (ledger.clone(), Arc::clone(&gate));
    let handler = move |job: Job| {
        let (ledger, turn) = (seen.clone(), Arc::clone(&turn));
        async move {
            turn.acquire().await.unwrap().forget();
            record(&ledger, &job);
            Ok(())
        }
    };
    let began = tokio::time::Instant::now();
    let consuming = start(consumer(&once, handler).concurrency(2), &stage).await;
    publish_twice(&stage, 1).await;
    until(&consuming, |stats| stats.delayed >= 1).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (delayed, seconds) = (consuming.stats().delayed, began.elapsed().as_secs());
    gate.add_permits(1);
    until(&consuming, |stats| stats.done == 1 && stats.duplicates == 1).await;
    stop(consuming).await;
    assert_eq!(ledger.count("message-0").unwrap(), 1);
    // Pauses of 200, 400 and 800 ms, and then one a second.
    assert!(delayed <= 4 + seconds, "{delayed} times in {seconds} s");
}

async fn a_business_error_is_on_record_and_the_duplicate_does_not_run(stage: Stage) {
    let (once, ledger) = (engine().await, Ledger::in_memory());
    let seen = ledger.clone();
    let handler = move |job: Job| {
        record(&seen, &job);
        async { Err(Trouble::OutOfStock) }
    };
    let consuming = start(consumer(&once, handler), &stage).await;
    stage.publish(Some("m"), "m").await;
    until(&consuming, |stats| stats.refused == 1).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    stage.publish(Some("m"), "m").await;
    until(&consuming, |stats| stats.duplicates == 1).await;
    stop(consuming).await;
    assert_eq!(ledger.count("m").unwrap(), 1);
    assert_eq!(stage.dead().await, []);
    assert_eq!(stage.left().await, 0);
}

async fn a_system_error_is_tried_again_with_pauses(stage: Stage) {
    let (once, tries) = (engine().await, Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&tries);
    let handler = move |_| {
        let n = counted.fetch_add(1, Ordering::SeqCst);
        async move { if n < 2 { Err(Trouble::DatabaseDown) } else { Ok(()) } }
    };
    let consuming = start(consumer(&once, handler), &stage).await;
    stage.publish(Some("m"), "m").await;
    until(&consuming, |stats| stats.done == 1 && stats.failed == 2).await;
    assert_eq!(tries.load(Ordering::SeqCst), 3);
    stop(consuming).await;
    assert_eq!(stage.left().await, 0);
}

async fn an_unknown_outcome_is_parked_shown_and_can_be_resolved(stage: Stage) {
    let (once, ledger) = (engine().await, Ledger::in_memory());
    let seen = ledger.clone();
    let handler = move |job: Job| {
        record(&seen, &job);
        async { Err(Trouble::TimedOut) }
    };
    let consuming = start(consumer(&once, handler), &stage).await;
    stage.publish(Some("m"), "m").await;
    until(&consuming, |stats| stats.parked == 1).await;
    let dead = stage.dead().await;
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!((dead[0].reason.as_str(), dead[0].id.as_deref()), ("unknown", Some("m")));
    // Its record is what the console shows, and where a person decides.
    let id: RecordId = dead[0].record.as_ref().unwrap().parse().unwrap();
    let shown = once.outcome(&id).await.unwrap().unwrap();
    assert_eq!(shown.state.kind(), StateKind::Lapsed);
    stage.publish(Some("m"), "m").await;
    until(&consuming, |stats| stats.parked == 2).await;
    once.resolve(&id, shown.fence, Resolution::Happened(Answer::none())).await.unwrap();
    tokio::time::sleep(Duration::from_millis(150)).await;
    stage.publish(Some("m"), "m").await;
    until(&consuming, |stats| stats.duplicates == 1).await;
    stop(consuming).await;
    assert_eq!(ledger.count("m").unwrap(), 1, "it never ran again");
    assert_eq!(stage.left().await, 0);
}

async fn poison_among_good_messages_goes_to_the_dead_letter_with_its_reason(stage: Stage) {
    let (once, ledger) = (engine().await, Ledger::in_memory());
    let seen = ledger.clone();
    let handler = move |job: Job| {
        let bad = job.message().payload() == b"bad";
        if !bad {
            record(&seen, &job);
        }
        async move { if bad { Err(Trouble::DatabaseDown) } else { Ok(()) } }
    };
    let retries = Retries { limit: 2, ..quick() };
    let has_position = !matches!(stage, Stage::Rabbit(_));
    let consuming = start(consumer(&once, handler).retries(retries), &stage).await;
    for n in 0..20 {
        stage.publish(Some(&format!("message-{n}")), &format!("message-{n}")).await;
        if n == 10 {
            stage.publish(None, "anonymous").await;
            stage.publish(Some("bad"), "bad").await;
        }
    }
    until(&consuming, |stats| stats.done >= 20).await;
    stage.publish(Some("message-3"), "something else").await;
    let expected = if has_position { 2 } else { 3 };
    until(&consuming, |stats| stats.dead == expected).await;
    stop(consuming).await;
    let mut dead: Vec<_> = stage.dead().await.into_iter().map(|dead| (dead.reason, dead.payload)).collect();
    dead.sort();
    let mut wanted = vec![("failed", "bad"), ("mismatch", "something else")];
    if has_position {
        // A stream has positions: it was handled under that name.
        assert_eq!(ledger.count("anonymous").unwrap(), 1);
    } else {
        wanted.push(("no-id", "anonymous"));
    }
    let wanted: Vec<_> = wanted.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
    assert_eq!(dead, wanted);
    assert_one_each(&ledger, names(20));
    assert_eq!(stage.left().await, 0);
}

async fn a_message_with_no_id_and_no_extractor_goes_to_the_dead_letter_with_the_reason(stage: Stage) {
    let (once, ledger) = (engine().await, Ledger::in_memory());
    let consuming = start(writer(&once, &ledger), &stage).await;
    stage.publish(None, "anonymous").await;
    until(&consuming, |stats| stats.dead == 1).await;
    stop(consuming).await;
    let dead = stage.dead().await;
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!((dead[0].reason.as_str(), dead[0].payload.as_str()), ("no-id", "anonymous"));
    assert!(dead[0].detail.contains("set message_id"), "it says what to do: {dead:?}");
    assert_eq!(ledger.effects().unwrap().len(), 0);
    assert_eq!(stage.left().await, 0);
}

/// The same position again is the same message; another with the same words is not.
async fn a_message_with_no_id_and_no_extractor_is_known_by_its_position(stage: Stage) {
    let (once, ledger) = (engine().await, Ledger::in_memory());
    stage.publish(None, "anonymous").await;
    let deaf = writer(&once, &ledger).start(NeverActs(stage.broker())).await.unwrap();
    until(&deaf, |stats| stats.unconfirmed >= 1).await;
    stop(deaf).await;
    let heard = start(writer(&once, &ledger), &stage).await;
    until(&heard, |stats| stats.duplicates == 1).await;
    stage.publish(None, "anonymous").await;
    until(&heard, |stats| stats.done == 1).await;
    stop(heard).await;
    assert_eq!(ledger.count("anonymous").unwrap(), 2);
    assert_eq!(stage.left().await, 0);
}

async fn an_extractor_finds_the_id_and_one_that_is_too_long_goes_to_the_dead_letter(stage: Stage) {
    let (once, ledger) = (engine().await, Ledger::in_memory());
    let extract = |message: &Message| {
        let text = std::str::from_utf8(message.payload()).ok()?;
        Some(if text == "long" { "x".repeat(300) } else { text.to_owned() })
    };
    let consuming = start(writer(&once, &ledger).message_id(extract), &stage).await;
    for payload in ["a", "b", "a", "long"] {
        stage.publish(None, payload).await;
    }
    until(&consuming, |stats| stats.done == 2 && stats.duplicates == 1 && stats.dead == 1).await;
    stop(consuming).await;
    assert_one_each(&ledger, ["a", "b"].map(str::to_owned));
    let dead = stage.dead().await;
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!((dead[0].reason.as_str(), dead[0].payload.as_str()), ("no-id", "long"));
    assert!(dead[0].detail.contains("300 bytes; the limit is 255"), "{dead:?}");
    assert_eq!(stage.left().await, 0);
}

async fn long_work_is_delivered_once(stage: Stage) {
    let (once, runs, wait) = (engine().await, Arc::new(AtomicU32::new(0)), Duration::from_secs(6));
    let counted = Arc::clone(&runs);
    let handler = move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            // Longer than NATS would wait without a word.
            tokio::time::sleep(wait * 3 / 2).await;
            Ok(())
        }
    };
    let broker: Box<dyn Connect> = match &stage {
        Stage::Nats(stage) => Box::new(stage.broker().ack_wait(wait)),
        _ => stage.broker(),
    };
    let consuming = consumer(&once, handler).start(broker).await.unwrap();
    stage.publish(Some("m"), "m").await;
    until(&consuming, |stats| stats.done == 1).await;
    let stats = consuming.stats();
    stop(consuming).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!((stats.delayed, stats.duplicates), (0, 0), "it was delivered again: {stats:?}");
}

async fn a_store_that_is_down_for_a_while_loses_nothing(stage: Stage) {
    let redis = url_in("ONLYONCE_TEST_REDIS_URL");
    let server = redis.strip_prefix("redis://").unwrap().to_owned();
    let proxy = FaultProxy::start(server).await.unwrap();
    let once = engine_at(format!("redis://127.0.0.1:{}", proxy.port()), &unique("consumer")).await;
    let ledger = Ledger::in_memory();
    let consuming = start(writer(&once, &ledger), &stage).await;
    for name in names(10) {
        stage.publish(Some(&name), &name).await;
    }
    until(&consuming, |stats| stats.done == 10).await;
    proxy.refuse().await;
    for name in names(20).skip(10) {
        stage.publish(Some(&name), &name).await;
    }
    until(&consuming, |stats| stats.delayed >= 10).await;
    assert_eq!(consuming.stats().done, 10, "nothing runs without its record");
    proxy.heal().await;
    until(&consuming, |stats| stats.done == 20).await;
    stop(consuming).await;
    assert_one_each(&ledger, names(20));
    assert_eq!(stage.dead().await, [], "it was not the fault of the messages");
    assert_eq!(stage.left().await, 0);
}

async fn a_lost_connection_in_the_middle_loses_nothing(stage: Stage) {
    let (once, ledger) = (engine().await, Ledger::in_memory());
    let proxy = stage.proxy().await;
    let slow = ledger.clone();
    let handler = move |job: Job| {
        let ledger = slow.clone();
        async move {
            record(&ledger, &job);
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok(())
        }
    };
    let consuming = consumer(&once, handler).concurrency(4).start(stage.broker_by(&proxy)).await.unwrap();
    for name in names(60) {
        stage.publish(Some(&name), &name).await;
    }
    for n in [10, 30] {
        until(&consuming, |stats| stats.done + stats.duplicates >= n).await;
        proxy.cut();
    }
    stage.settled(&consuming).await;
    stop(consuming).await;
    assert_one_each(&ledger, names(60));
    assert_eq!(stage.left().await, 0);
}

async fn a_broker_that_falls_silent_does_not_hold_up_the_end(stage: Stage) {
    let (once, ledger, gate) = (engine().await, Ledger::in_memory(), Arc::new(Semaphore::new(2)));
    let (proxy, seen, turn) = (stage.proxy().await, ledger.clone(), Arc::clone(&gate));
    let handler = move |job: Job| {
        let (ledger, turn) = (seen.clone(), Arc::clone(&turn));
        async move {
            turn.acquire().await.unwrap().forget();
            record(&ledger, &job);
            Ok(())
        }
    };
    for name in names(8) {
        stage.publish(Some(&name), &name).await;
    }
    let consuming = consumer(&once, handler).concurrency(4).start(stage.broker_by(&proxy)).await.unwrap();
    until(&consuming, |stats| stats.done == 2).await;
    proxy.black_hole();
    gate.add_permits(1_000);
    // Its acks go nowhere, and nobody says so.
    let ended = consuming.shutdown(Duration::from_secs(5));
    let ended = tokio::time::timeout(Duration::from_secs(90), ended).await;
    assert!(ended.is_ok(), "the end waited for a broker that says nothing");
    proxy.heal().await;
    let second = start(writer(&once, &ledger), &stage).await;
    until_effects(&ledger, 8).await;
    stage.settled(&second).await;
    stop(second).await;
    assert_one_each(&ledger, names(8));
    assert_eq!(stage.left().await, 0);
}

async fn a_rebalance_in_the_middle_loses_nothing(stage: Stage) {
    let (once, ledger) = (engine().await, Ledger::in_memory());
    let slow = ledger.clone();
    let handler = move |job: Job| {
        let ledger = slow.clone();
        async move {
            record(&ledger, &job);
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(())
        }
    };
    let first = start(consumer(&once, handler.clone()), &stage).await;
    let mut second = None;
    let mut sent = 0;
    // They flow until the second has its share: a group takes its time.
    while second.as_ref().is_none_or(|second: &Consuming| second.stats().done < 4) {
        assert!(sent < 1_200, "one of them has nothing to do: {first:?} {second:?}");
        let name = format!("message-{sent}");
        stage.publish(Some(&name), &name).await;
        sent += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
        if second.is_none() && first.stats().done >= 8 {
            second = Some(start(consumer(&once, handler.clone()), &stage).await);
        }
    }
    stop(first).await;
    let second = second.unwrap();
    stage.settled(&second).await;
    stop(second).await;
    assert_one_each(&ledger, names(sent));
}

async fn a_shutdown_drains_and_gives_the_rest_back(stage: Stage) {
    let (once, ledger) = (engine().await, Ledger::in_memory());
    let slow = ledger.clone();
    let handler = move |job: Job| {
        let ledger = slow.clone();
        async move {
            record(&ledger, &job);
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(())
        }
    };
    for name in names(20) {
        stage.publish(Some(&name), &name).await;
    }
    let first = start(consumer(&once, handler).concurrency(2), &stage).await;
    until(&first, |stats| stats.done >= 2).await;
    assert_eq!(first.shutdown(Duration::from_secs(30)).await, Drained::Everything);
    let done = ledger.effects().unwrap().len();
    assert!((2..20).contains(&done), "{done}");
    let second = start(writer(&once, &ledger), &stage).await;
    until(&second, |stats| stats.done + stats.duplicates >= 20 - done as u64).await;
    stage.settled(&second).await;
    stop(second).await;
    assert_one_each(&ledger, names(20));
}

async fn a_batch_has_a_result_for_each_message(stage: Stage) {
    let (once, ledger) = (engine().await, Ledger::in_memory());
    let (seen, largest) = (ledger.clone(), Arc::new(AtomicU32::new(0)));
    let most = Arc::clone(&largest);
    let handler = move |jobs: Vec<Job>| {
        most.fetch_max(jobs.len() as u32, Ordering::SeqCst);
        jobs.iter().for_each(|job| record(&seen, job));
        let results = jobs.iter().map(|job| match job.message().payload() {
            b"message-3" => Err(Trouble::OutOfStock),
            b"message-4" => Err(Trouble::TimedOut),
            _ => Ok(()),
        });
        let results = results.collect();
        async move { results }
    };
    let batch = Batch { max: 8, linger: Duration::from_millis(500) };
    for name in names(24) {
        stage.publish(Some(&name), &name).await;
    }
    let consumer = Consumer::batched(once, "stock", "decrement", batch, handler).retries(quick());
    let consuming = start(consumer.replay_horizon(Duration::from_secs(60)), &stage).await;
    until(&consuming, |stats| stats.done == 22 && stats.refused == 1 && stats.parked == 1).await;
    stop(consuming).await;
    assert!(largest.load(Ordering::SeqCst) > 1, "there was no batch");
    assert_one_each(&ledger, names(24));
    assert_eq!(stage.left().await, 0);
}

async fn a_panic_is_an_unknown_outcome_and_stops_nobody_else(stage: Stage) {
    let (once, ledger) = (engine().await, Ledger::in_memory());
    let seen = ledger.clone();
    let handler = move |job: Job| {
        record(&seen, &job);
        assert_ne!(job.message().payload(), b"message-1", "this one panics, as it should");
        async { Ok(()) }
    };
    let consuming = start(consumer(&once, handler), &stage).await;
    for name in names(3) {
        stage.publish(Some(&name), &name).await;
    }
    until(&consuming, |stats| stats.done == 2 && stats.parked == 1).await;
    stop(consuming).await;
    assert_one_each(&ledger, names(3));
}

async fn a_panic_of_the_hook_that_recovers_leaves_its_message_in_nobodys_hands(stage: Stage) {
    let asks = OnLapse::Ask { after: Duration::from_millis(200) };
    let once = engine().await.with_settings(Settings { on_lapse: asks, ..common::settings() }).unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let hook = move |_| {
        let n = counted.fetch_add(1, Ordering::SeqCst);
        assert_ne!(n, 0, "the first one panics, as it should");
        async { Recovery::Done(()) }
    };
    // One at a time on RabbitMQ and NATS: one that is left in our hands would stop all others.
    let unknown = consumer(&once, |_| async { Err(Trouble::TimedOut) }).recover(hook).concurrency(1);
    let consuming = start(unknown, &stage).await;
    stage.publish(Some("m"), "m").await;
    until(&consuming, |stats| stats.duplicates == 1).await;
    stop(consuming).await;
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert_eq!(stage.left().await, 0);
}

/// The second copy would wait for the first, which is not handled before both are claimed.
async fn a_message_twice_in_one_batch_waits_for_nobody(stage: Stage) {
    let patient = Settings { wait: Duration::from_secs(600), ..common::settings() };
    let (once, ledger) = (engine().await.with_settings(patient).unwrap(), Ledger::in_memory());
    publish_twice(&stage, 4).await;
    let seen = ledger.clone();
    let handler = move |jobs: Vec<Job>| {
        jobs.iter().for_each(|job| record(&seen, job));
        async move { jobs.iter().map(|_| Ok::<(), Trouble>(())).collect() }
    };
    let batch = Batch { max: 8, linger: Duration::from_secs(1) };
    let consumer = Consumer::batched(once, "stock", "decrement", batch, handler).retries(quick());
    let consuming = start(consumer.replay_horizon(Duration::from_secs(60)).concurrency(1), &stage).await;
    until(&consuming, |stats| stats.done == 4 && stats.duplicates == 4).await;
    stop(consuming).await;
    assert_one_each(&ledger, names(4));
}

/// A broker that never hears what became of a message: as if the process died between the effect and the ack.
#[derive(Debug)]
struct NeverActs(Box<dyn Connect>);

#[async_trait]
impl Connect for NeverActs {
    fn broker(&self) -> Broker {
        self.0.broker()
    }

    async fn connect(self: Box<Self>, plan: &Plan) -> Result<Connected, StartError> {
        let connected = self.0.connect(plan).await?;
        Ok(Connected { source: Box::new(Deaf(connected.source)), ..connected })
    }
}

struct Deaf(Box<dyn Source>);

#[async_trait]
impl Source for Deaf {
    async fn next(&mut self) -> Box<dyn Delivery> {
        Box::new(Unheard(self.0.next().await))
    }

    async fn stop(&mut self) {
        self.0.stop().await;
    }

    async fn close(self: Box<Self>) {
        self.0.close().await;
    }
}

struct Unheard(Box<dyn Delivery>);

#[async_trait]
impl Delivery for Unheard {
    fn message(&self) -> &Message {
        self.0.message()
    }

    async fn act(self: Box<Self>, _: &Action, _: &Note) -> Result<(), BrokerError> {
        Err(BrokerError::new("anything", "the process is dead"))
    }

    async fn give_back(self: Box<Self>) {}
}
