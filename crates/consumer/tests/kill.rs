//! Consumer processes that are killed with SIGKILL at random, while messages flow that are each published twice.
//!
//! With leases in a store: at most one effect each, and those that nobody can know about are parked and shown.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use common::victims::{self, Act, Plan};
use common::{Stage, Trouble, engine_at, quick, record, text, unique, url_in};
use onlyonce_consumer::{Consumer, Job};
use onlyonce_core::{Idempotency, Key, Operation, RecordId, Scope, Settings, StateKind};
use onlyonce_testkit::Ledger;

macro_rules! on_each {
    ($($name:ident $stage:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            match victims::told() {
                Some(told) => is_victim(told).await,
                None => killed_at_random(stringify!($name), Stage::$stage().await).await,
            }
        }
    )*};
}

on_each! {
    rabbitmq_consumers_killed_at_random_have_at_most_one_effect_a_message rabbitmq;
    nats_consumers_killed_at_random_have_at_most_one_effect_a_message nats;
    kafka_consumers_killed_at_random_have_at_most_one_effect_a_message kafka;
}

/// Where records and effects are, for all processes.
struct Scene {
    once: Idempotency,
    ledger: Ledger,
}

impl Scene {
    /// Short leases: what a killed process held is in doubt soon, and not when the test is over.
    async fn of(prefix: &str, ledger: &PathBuf) -> Self {
        let settings = Settings {
            lease: Duration::from_secs(2),
            retain: Duration::from_secs(3600),
            ..Settings::default()
        };
        let engine = engine_at(url_in("ONLYONCE_TEST_REDIS_URL"), prefix).await;
        Self { once: engine.with_settings(settings).unwrap(), ledger: Ledger::in_file(ledger).unwrap() }
    }

    /// An effect outside of the store, with time before and after it to die in.
    fn consumer(&self) -> Consumer {
        let (ledger, act) = (self.ledger.clone(), Act::of_this_process());
        let handler = move |job: Job| {
            let (ledger, act) = (ledger.clone(), act.clone());
            async move {
                let message = text(&job);
                act.before_the_effect(&message).await;
                record(&ledger, &job);
                act.after_the_effect(&message).await;
                Ok::<(), Trouble>(())
            }
        };
        Consumer::new(self.once.clone(), "stock", "decrement", handler)
            .retries(quick())
            .concurrency(4)
            .replay_horizon(Duration::from_secs(60))
    }
}

async fn is_victim([url, queue, prefix, ledger]: [String; 4]) {
    let scene = Scene::of(&prefix, &ledger.into()).await;
    victims::consume(|| scene.consumer(), &url, &queue).await;
}

async fn killed_at_random(test: &str, stage: Stage) {
    let plan = Plan::on(&stage);
    let directory = tempfile::tempdir().unwrap();
    let (prefix, ledger) = (unique("kill"), directory.path().join("effects"));
    let told = format!("{}|{}|{prefix}|{}", stage.url(), stage.name(), ledger.display());
    plan.kill_while_they_flow(test, &told, async |name| stage.publish(Some(&name), &name).await).await;
    let scene = Scene::of(&prefix, &ledger).await;
    stage.drain(|| scene.consumer()).await;
    judge(plan, &scene, &stage).await;
}

/// At most one effect each; every message ended: done, or parked, in its record and in the dead letter.
async fn judge(plan: Plan, scene: &Scene, stage: &Stage) {
    let mut effects: BTreeMap<String, u32> = BTreeMap::new();
    for effect in scene.ledger.effects().unwrap() {
        *effects.entry(effect.key).or_default() += 1;
    }
    let twice: Vec<_> = effects.iter().filter(|(_, n)| **n > 1).collect();
    assert!(twice.is_empty(), "had more than one effect: {twice:?}");
    let (scope, operation) = (Scope::new("stock").unwrap(), Operation::new("decrement").unwrap());
    let parked = stage.dead().await.into_iter().map(|dead| {
        assert_eq!(dead.reason, "unknown", "{dead:?}");
        dead.payload
    });
    let parked: BTreeSet<String> = parked.collect();
    let (mut done, mut unknown) = (0, 0);
    for name in plan.all() {
        let id = RecordId::of(&scope, &operation, &Key::new(name.as_str()).unwrap());
        match scene.once.outcome(&id).await.unwrap().map(|found| found.state.kind()) {
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
    let (Plan { messages, kills }, effects) = (plan, effects.len());
    println!("{kills} kills, {messages} messages twice: {effects} effects, {done} done, {unknown} parked");
    assert!(done * 10 >= messages * 7, "only {done} of {messages} were done");
    for name in plan.in_the_middle() {
        assert!(parked.contains(&name), "a victim died in the middle of {name}, and it is not in doubt");
    }
}
