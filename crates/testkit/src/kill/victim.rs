//! The process that is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_core::{
    Answer, Clock, FingerprintBuilder, Finished, Hash16, Idempotency, Intent, Key, Label, Operation, Prior,
    RecordId, Scope, Settings, Started, StateKind, Store, SystemClock,
};

use super::scene::{Heard, Scene, Share, Task, keys_of};
use crate::ledger::Ledger;

/// How many callers send each key at the same time.
const CALLERS: u64 = 3;
/// Short, so that a pause of the process outlasts it.
pub(super) const LEASE: Duration = Duration::from_millis(200);

/// Does what the harness asked for.
pub(super) fn run(scene: &Scene, task: Task, store: Arc<dyn Store>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let settings = Settings { lease: LEASE, wait: Duration::from_secs(5), ..Settings::default() };
        let once = Idempotency::builder_shared(store).settings(settings).build().expect("sensible settings");
        match task {
            Task::Round(round) => work(scene, round, &once).await,
            Task::Finish(last) => {
                for round in (0..=last).step_by(2).chain([last]) {
                    finish(scene, keys_of(round), &once).await;
                }
            }
            Task::Crowd(share) => crowd(scene, share, &once).await,
            Task::Sum(share) => finish(scene, (0..share.keys).map(key), &once).await,
        }
        once.drain(Duration::from_secs(10)).await;
    });
}

/// Sends every key of the round by several callers at once, each in an order of its own.
async fn work(scene: &Scene, round: u64, once: &Idempotency) {
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (once, effects, heard) = (once.clone(), scene.effects(), scene.heard());
            let mut keys: Vec<_> = keys_of(round).collect();
            let first = usize::try_from(caller).unwrap_or(0) * keys.len() / CALLERS as usize;
            keys.rotate_left(first);
            tokio::spawn(async move {
                for key in keys {
                    call(&once, &key, &effects, &heard).await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("callers do not panic");
    }
}

/// Calls as an adapter does, because only an adapter hears whether its answer was stored.
async fn call(once: &Idempotency, key: &str, effects: &Ledger, heard: &Ledger) {
    let (id, intent) = (record_id(key), intent(key, once));
    let said = match once.start(&id, &intent).await {
        Ok(Started::Run(mut running)) => {
            running.begun();
            let answer = effect(key, effects).await;
            match running.complete(Answer(answer.clone().into())).await {
                Ok(Finished::Stored) => Heard::Stored(answer),
                Ok(Finished::Pending) => Heard::Pending(answer),
                Ok(Finished::Superseded(prior)) => before(prior),
                Err(error) => Heard::Refused(error.to_string()),
            }
        }
        Ok(Started::Prior(prior)) => before(prior),
        Ok(Started::Ask(_)) => unreachable!("unknown outcomes are held"),
        Err(error) => Heard::Refused(error.to_string()),
    };
    heard.record(key, &said.to_string()).expect("a ledger that can be written to");
}

fn before(prior: Prior) -> Heard {
    match prior {
        Prior::Replay(replay) => Heard::Stored(String::from_utf8_lossy(&replay.answer.0).into_owned()),
        Prior::Refused(refusal) => Heard::Refused(refusal.to_string()),
    }
}

fn record_id(key: &str) -> RecordId {
    let operation = Operation::new("effect").expect("a good operation");
    RecordId::of(&Scope::shared(), &operation, &Key::new(key).expect("a good key"))
}

fn intent(key: &str, once: &Idempotency) -> Arc<Intent> {
    let label = Label {
        route: "effect".into(),
        key: Hash16::of_key(&Key::new(key).expect("a good key")),
        scope: Hash16::of_scope(&Scope::shared()),
    };
    let fingerprint = FingerprintBuilder::new().part(key.as_bytes()).finish();
    Arc::new(Intent { fingerprint, label, settings: Arc::clone(once.settings()) })
}

/// An effect outside of the store, with time before and after it to die in. Every execution answers differently.
async fn effect(key: &str, effects: &Ledger) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let answer = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    tokio::time::sleep(Duration::from_millis(1)).await;
    effects.record(key, &answer).expect("a ledger that can be written to");
    tokio::time::sleep(Duration::from_millis(1)).await;
    answer
}

/// Sends the keys that have just come up, by several callers at once, until there are no more: all processes meet at them.
async fn crowd(scene: &Scene, share: Share, once: &Idempotency) {
    const AT_ONCE: u64 = 8;
    let callers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (once, effects, heard) = (once.clone(), scene.effects(), scene.heard());
            tokio::spawn(async move {
                loop {
                    let newest = SystemClock.wall_micros().saturating_sub(share.begin) / share.pace.max(1);
                    if newest >= share.keys {
                        return;
                    }
                    let nearby = newest.saturating_sub(rand::random_range(0..5));
                    call(&once, &key(nearby), &effects, &heard).await;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("callers do not panic");
    }
}

/// Sends every key once more, and writes down how its record ended.
async fn finish(scene: &Scene, keys: impl Iterator<Item = String>, once: &Idempotency) {
    let (effects, heard, ended) = (scene.effects(), scene.heard(), scene.ended());
    for key in keys {
        call(once, &key, &effects, &heard).await;
        let state = once
            .outcome(&record_id(&key))
            .await
            .expect("a store that answers")
            .map(|found| found.state.kind());
        let state = match state {
            Some(StateKind::Running) => "running",
            Some(StateKind::Lapsed) => "lapsed",
            Some(StateKind::Released) => "released",
            Some(StateKind::Completed) => "completed",
            None => "absent",
        };
        ended.record(&key, state).expect("a ledger that can be written to");
    }
}

fn key(number: u64) -> String {
    format!("key-{number}")
}
