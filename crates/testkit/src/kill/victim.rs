//! The process that is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_core::codec::CodecError;
use onlyonce_core::{Bytes, Class, Classify, Idempotency, Refusal, Settings, StateKind, Store};

use super::scene::{Scene, Share, Task, keys_of};
use crate::ledger::Ledger;

/// How many callers send each key at the same time.
const CALLERS: u64 = 3;
/// Short, so that a pause of the process outlasts it.
pub(super) const LEASE: Duration = Duration::from_millis(200);

/// The effect never fails by itself; only what is said instead of an answer remains.
#[derive(Debug)]
struct NoAnswer(Refusal);

impl From<Refusal> for NoAnswer {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl Classify for NoAnswer {
    fn classify(&self) -> Class {
        Class::Unknown
    }

    fn save(&self) -> Result<Bytes, CodecError> {
        Err(CodecError::Invalid("a refusal is not an answer".into()))
    }

    fn revive(_: Bytes) -> Result<Self, CodecError> {
        Err(CodecError::Invalid("no error is ever stored".into()))
    }
}

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

async fn call(once: &Idempotency, key: &str, effects: &Ledger, heard: &Ledger) {
    let answer =
        once.call("effect", key).input(&key.len()).run(effect(key.to_owned(), effects.clone())).await;
    let said = match answer {
        Ok(answer) => answer,
        Err(NoAnswer(refusal)) => format!("!{refusal}"),
    };
    heard.record(key, &said).expect("a ledger that can be written to");
}

/// An effect outside of the store, with time before and after it to die in. Every execution answers differently.
async fn effect(key: String, effects: Ledger) -> Result<String, NoAnswer> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let answer = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    tokio::time::sleep(Duration::from_millis(1)).await;
    effects.record(&key, &answer).expect("a ledger that can be written to");
    tokio::time::sleep(Duration::from_millis(1)).await;
    Ok(answer)
}

/// Sends a share of the duplicates by several callers at once. New keys come up all the time, a few of them at a time, so that
/// the processes of a crowd meet at them.
async fn crowd(scene: &Scene, share: Share, once: &Idempotency) {
    const AT_ONCE: u64 = 16;
    let next = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (once, effects, heard) = (once.clone(), scene.effects(), scene.heard());
            let next = Arc::clone(&next);
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= share.keys * share.calls {
                        return;
                    }
                    let nearby = share.from + number / share.calls.max(1) + rand::random_range(0..5);
                    call(&once, &key(nearby % share.keys), &effects, &heard).await;
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
        let id = once.call("effect", key.as_str()).record_id().expect("a good key");
        let state = once.outcome(&id).await.expect("a store that answers").map(|found| found.state.kind());
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
