//! Consumer processes that are killed with SIGKILL at random, while messages flow that are each published twice.
//!
//! With leases in a store: at most one effect each, and those that nobody can know about are parked and shown.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Stage, Trouble, engine_at, quick, record, unique, url_in};
use onlyonce_consumer::adapter::Connect;
use onlyonce_consumer::{Consumer, Job, Nats, RabbitMq};
use onlyonce_core::{Idempotency, Key, Operation, RecordId, Scope, Settings, StateKind};
use onlyonce_testkit::Ledger;

const VICTIM: &str = "ONLYONCE_CONSUMER_VICTIM";

/// How many messages and kills: few in a test, many in a soak.
fn counts() -> (u32, u32) {
    match std::env::var("ONLYONCE_CONSUMER_KILLS").ok().and_then(|kills| kills.parse().ok()) {
        Some(kills) => (kills * 100, kills),
        None => (200, 8),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_consumers_killed_at_random_have_at_most_one_effect_a_message() {
    killed_at_random(
        "rabbitmq_consumers_killed_at_random_have_at_most_one_effect_a_message",
        Stage::rabbitmq,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_consumers_killed_at_random_have_at_most_one_effect_a_message() {
    killed_at_random("nats_consumers_killed_at_random_have_at_most_one_effect_a_message", Stage::nats).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_consumers_killed_at_random_have_at_most_one_effect_a_message() {
    killed_at_random("kafka_consumers_killed_at_random_have_at_most_one_effect_a_message", Stage::kafka)
        .await;
}

/// What a victim has to know.
struct Scene {
    broker: String,
    queue: String,
    prefix: String,
    ledger: PathBuf,
}

impl Scene {
    fn of_victim() -> Option<Self> {
        let told = std::env::var(VICTIM).ok()?;
        let [broker, queue, prefix, ledger] = told.split('|').collect::<Vec<_>>().try_into().ok()?;
        Some(Self {
            broker: broker.into(),
            queue: queue.into(),
            prefix: prefix.into(),
            ledger: ledger.into(),
        })
    }

    fn victim(&self, test: &str) -> Child {
        let Self { broker, queue, prefix, ledger } = self;
        Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(VICTIM, format!("{broker}|{queue}|{prefix}|{}", ledger.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn connect(&self) -> Box<dyn Connect> {
        let Self { broker, queue, .. } = self;
        match broker.split(':').next().unwrap() {
            "amqp" => Box::new(RabbitMq::new(broker, queue).dead_letter(format!("{queue}.dead"))),
            "nats" => Box::new(
                Nats::new(broker, queue)
                    .subject(format!("{queue}.paid"))
                    .dead_letter(format!("dead.{queue}"))
                    .ack_wait(common::nats::ACK_WAIT),
            ),
            _ => Box::new(common::kafka::broker(broker, queue)),
        }
    }

    /// Short leases: what a killed process held is in doubt soon, and not when the test is over.
    async fn engine(&self) -> Idempotency {
        let settings = Settings {
            lease: Duration::from_secs(2),
            retain: Duration::from_secs(3600),
            ..Settings::default()
        };
        let engine = engine_at(url_in("ONLYONCE_TEST_REDIS_URL"), &self.prefix).await;
        engine.with_settings(settings).unwrap()
    }

    /// An effect outside of the store, with time before and after it to die in.
    fn consumer(&self, once: Idempotency) -> Consumer {
        let ledger = Ledger::in_file(&self.ledger).unwrap();
        let handler = move |job: Job| {
            let ledger = ledger.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(2)).await;
                record(&ledger, &job);
                tokio::time::sleep(Duration::from_millis(2)).await;
                Ok::<(), Trouble>(())
            }
        };
        Consumer::new(once, "stock", "decrement", handler)
            .retries(quick())
            .concurrency(4)
            .replay_horizon(Duration::from_secs(60))
    }
}

async fn killed_at_random<F: Future<Output = Stage>>(test: &str, stage: impl FnOnce() -> F) {
    if let Some(scene) = Scene::of_victim() {
        let once = scene.engine().await;
        let consuming = scene.consumer(once).start(scene.connect()).await;
        // It may be that the broker is not there for a moment; the next victim finds it.
        if let Ok(_consuming) = consuming {
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        std::process::exit(0);
    }
    let (messages, kills) = counts();
    let stage = stage().await;
    let directory = tempfile::tempdir().unwrap();
    let scene = Scene {
        broker: stage.url(),
        queue: stage.name(),
        prefix: unique("kill"),
        ledger: directory.path().join("effects"),
    };
    let publishing = async {
        for _ in 0..2 {
            for n in 0..messages {
                let name = format!("message-{n}");
                stage.publish(Some(&name), &name).await;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    };
    let killing = async {
        for _ in 0..kills {
            let mut victim = scene.victim(test);
            // From before it is connected until well into its work.
            tokio::time::sleep(Duration::from_millis(rand::random_range(200..2_000))).await;
            victim.kill().unwrap();
            victim.wait().unwrap();
        }
    };
    tokio::join!(publishing, killing);
    let once = scene.engine().await;
    let last = scene.consumer(once.clone()).start(stage.broker()).await.unwrap();
    drained(&stage, &last).await;
    last.shutdown(Duration::from_secs(30)).await;
    judge(&scene.ledger, messages, &once, &stage).await;
}

async fn drained(stage: &Stage, last: &onlyonce_consumer::Consuming) {
    let mut before = last.stats();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = last.stats();
        if now == before && stage.left().await == 0 {
            return;
        }
        before = now;
    }
}

/// At most one effect each; every message ended: done, or parked, in its record and in the dead letter.
async fn judge(ledger: &Path, messages: u32, once: &Idempotency, stage: &Stage) {
    let mut effects: BTreeMap<String, u32> = BTreeMap::new();
    for effect in Ledger::in_file(ledger).unwrap().effects().unwrap() {
        *effects.entry(effect.key).or_default() += 1;
    }
    let twice: Vec<_> = effects.iter().filter(|(_, n)| **n > 1).collect();
    assert!(twice.is_empty(), "had more than one effect: {twice:?}");
    let (scope, operation) = (Scope::new("stock").unwrap(), Operation::new("decrement").unwrap());
    let parked: Vec<String> = stage
        .dead()
        .await
        .into_iter()
        .map(|dead| {
            assert_eq!(dead.reason, "unknown", "{dead:?}");
            dead.payload
        })
        .collect();
    let (mut done, mut unknown) = (0, 0);
    for n in 0..messages {
        let name = format!("message-{n}");
        let id = RecordId::of(&scope, &operation, &Key::new(name.as_str()).unwrap());
        match once.outcome(&id).await.unwrap().map(|found| found.state.kind()) {
            Some(StateKind::Completed) => {
                assert_eq!(effects.get(&name), Some(&1), "{name} is done");
                done += 1;
            }
            Some(StateKind::Lapsed) => {
                assert!(parked.contains(&name), "{name} is in doubt, and in no dead letter");
                unknown += 1;
            }
            other => panic!("{name} was lost: {other:?}"),
        }
    }
    println!("{messages} messages twice: {done} done, {unknown} parked");
    assert!(done * 10 >= messages * 8, "only {done} of {messages} were done");
}
