//! One message through the engine: claim, handler, settle. Nothing here knows a broker.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use onlyonce_core::{
    Answer, Class, Cleared, ErrorKind, FingerprintBuilder, Finished, Hash16, Idempotency, Intent, Key, Label,
    OnLapse, Operation, Prior, RecordId, Recovery, Refusal, Running, Scope, Started, StoreError,
};

use crate::adapter::Note;
use crate::decision::{Outcome, Reason};
use crate::handler::{Ask, BoxFuture, Ended, Handler, Job};
use crate::identity::Identify;
use crate::message::Message;

/// What is compared when an id comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compare {
    /// The payload too: the same id with another payload goes to the dead letter.
    #[default]
    Payload,
    /// The id alone, for senders that write the same event differently each time.
    IdOnly,
}

#[derive(Clone)]
pub(crate) struct Processor {
    pub(crate) once: Idempotency,
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) scope: Scope,
    pub(crate) operation: Operation,
    pub(crate) route: Arc<str>,
    pub(crate) scope_hash: Hash16,
    pub(crate) identify: Identify,
    pub(crate) compare: Compare,
    pub(crate) ask: Option<Ask>,
    pub(crate) handler: Handler,
}

/// When looking again makes sense after something that is over soon.
const LOOK: Duration = Duration::from_secs(1);

/// A message that may be handled.
pub(crate) struct Begun {
    running: Running,
    message: Message,
}

/// What a claim led to.
pub(crate) enum Claimed {
    Run(Box<Begun>),
    Not(Outcome),
}

impl Processor {
    /// What is known of the message before anything is done.
    pub(crate) fn note(&self, message: &Message) -> (Note, Result<Key, Reason>) {
        let key = self.identify.id_of(message).map_err(Reason::NoId);
        let history = message.history();
        let note = Note {
            group: self.group.clone(),
            handler: self.name.clone(),
            message_id: key.as_ref().ok().map(|key| key.as_str().to_owned()),
            record: key.as_ref().ok().map(|key| RecordId::of(&self.scope, &self.operation, key)),
            failures: history.failures,
            deliveries: history.deliveries.saturating_add(1),
        };
        (note, if message.is_garbled() { Err(Reason::Headers) } else { key })
    }

    /// Handles some messages together, each under a claim of its own; most often it is one.
    pub(crate) async fn process(&self, messages: Vec<Message>) -> Vec<(Outcome, Note)> {
        let claims = messages.into_iter().map(|message| async move {
            let (note, key) = self.note(&message);
            let claimed = match key {
                Ok(key) => self.claim(&key, message).await,
                Err(reason) => Claimed::Not(Outcome::Poison(reason)),
            };
            (claimed, note)
        });
        let mut begun = Vec::new();
        let mut done: Vec<(Option<Outcome>, Note)> = Vec::new();
        for (claimed, note) in futures_util::future::join_all(claims).await {
            match claimed {
                Claimed::Run(one) => {
                    begun.push((done.len(), *one));
                    done.push((None, note));
                }
                Claimed::Not(outcome) => done.push((Some(outcome), note)),
            }
        }
        // A claim may be lost before all others are made: by now somebody else may have it.
        let (lost, begun): (Vec<_>, Vec<_>) =
            begun.into_iter().partition(|(_, one)| one.running.permit().is_lost());
        for (place, one) in lost {
            tracing::warn!(record = %one.running.permit().record_id(), "a message was not begun: its lease was lost before");
            done[place].0 = Some(Outcome::InFlight { retry_after: LOOK });
        }
        let (places, begun): (Vec<_>, Vec<_>) = begun.into_iter().unzip();
        for (place, outcome) in places.into_iter().zip(self.run(begun).await) {
            if let Outcome::Failed { failures, .. } = &outcome {
                done[place].1.failures = *failures;
            }
            done[place].0 = Some(outcome);
        }
        // Every place was filled by one of the two loops.
        done.into_iter().map(|(outcome, note)| (outcome.unwrap_or(Outcome::StoreDown), note)).collect()
    }

    async fn claim(&self, key: &Key, message: Message) -> Claimed {
        let id = RecordId::of(&self.scope, &self.operation, key);
        let payload = match self.compare {
            Compare::Payload => message.payload(),
            Compare::IdOnly => &[],
        };
        let intent = Arc::new(Intent {
            fingerprint: FingerprintBuilder::new().part(payload).finish(),
            label: Label { route: Arc::clone(&self.route), key: Hash16::of_key(key), scope: self.scope_hash },
            settings: Arc::clone(self.once.settings()),
        });
        let started = match self.once.start(&id, &intent).await {
            Ok(started) => started,
            Err(error) => return Claimed::Not(store_failed(&id, &error)),
        };
        let cleared = match started {
            Started::Run(running) => Cleared::Run(running),
            Started::Prior(prior) => Cleared::Prior(prior),
            Started::Ask(asking) => {
                let found = match &self.ask {
                    Some(ask) => self.asked(ask(Job::new(message.clone(), asking.permit().clone()))).await,
                    None => {
                        tracing::error!(record = %id, "OnLapse::Ask needs Consumer::recover; the outcome stays unknown");
                        Recovery::Unknown
                    }
                };
                let found = match found {
                    Recovery::Done(()) => Recovery::Done(Answer::none()),
                    Recovery::NotDone => Recovery::NotDone,
                    Recovery::Unknown => Recovery::Unknown,
                };
                match asking.resolve(found).await {
                    Ok(cleared) => cleared,
                    Err(error) => return Claimed::Not(store_failed(&id, &error)),
                }
            }
        };
        match cleared {
            Cleared::Run(running) => Claimed::Run(Box::new(Begun { running, message })),
            Cleared::Prior(prior) => Claimed::Not(judge(prior)),
        }
    }

    /// What the hook found out, in the time that a handler has.
    async fn asked(&self, hook: BoxFuture<Recovery<()>>) -> Recovery<()> {
        let limit = self.once.settings().max_run;
        tokio::select! {
            found = hook => found,
            () = self.once.clock().sleep(limit) => {
                tracing::error!(?limit, "the hook that recovers said nothing in time; the outcome stays unknown");
                Recovery::Unknown
            }
        }
    }

    async fn run(&self, mut begun: Vec<Begun>) -> Vec<Outcome> {
        if begun.is_empty() {
            return Vec::new();
        }
        begun.iter_mut().for_each(|one| one.running.begun());
        let mut jobs: Vec<Job> =
            begun.iter().map(|one| Job::new(one.message.clone(), one.running.permit().clone())).collect();
        let expected = begun.len();
        // Making the future may panic too, so that happens inside.
        let handled = async {
            match &self.handler {
                Handler::One(handler) => match jobs.pop() {
                    Some(job) => vec![handler(job).await],
                    None => Vec::new(),
                },
                Handler::Many(_, handler) => handler(jobs).await,
            }
        };
        let ended = match AssertUnwindSafe(handled).catch_unwind().await {
            Ok(ended) if ended.len() == expected => ended,
            Ok(ended) => {
                let why = format!("the handler gave {} results for {expected} messages", ended.len());
                vec![Ended::Unknown(why); expected]
            }
            Err(_) => vec![Ended::Unknown("the handler panicked".into()); expected],
        };
        let settled = begun.into_iter().zip(ended).map(|(one, ended)| self.settle(one, ended));
        futures_util::future::join_all(settled).await
    }

    /// Puts it on record how the handler ended. Only what is on record is ever acked.
    async fn settle(&self, begun: Begun, ended: Ended) -> Outcome {
        let Begun { mut running, message } = begun;
        let atomic = running.is_atomic();
        let id = running.permit().record_id();
        let attempts = running.permit().attempt();
        // Where the record ends with the effect nothing counts the attempts but the broker.
        let failures = if atomic { message.history().failures.saturating_add(1) } else { attempts };
        let on_lapse = running.settings().on_lapse;
        let (class, record, outcome) = match ended {
            Ended::Done => (Class::Keep, Answer::none(), Outcome::Done),
            Ended::Refused(answer) => {
                // Where the effect ends with its record, what a refused message did besides is undone.
                running.refused();
                (Class::Keep, answer, Outcome::Refused)
            }
            Ended::Failed(why) => {
                tracing::warn!(record = %id, failures, why, "a message failed and will be tried again");
                (Class::Release, Answer::none(), Outcome::Failed { failures, why })
            }
            Ended::Unknown(why) if atomic => {
                tracing::error!(record = %id, why, "a message failed, and all it did was undone");
                (Class::Release, Answer::none(), Outcome::Failed { failures, why })
            }
            Ended::Unknown(why) => {
                tracing::error!(record = %id, why, "nobody knows whether a message had its effect");
                let outcome = match on_lapse {
                    OnLapse::Hold => Outcome::Unknown { ask_in: None },
                    OnLapse::Ask { after } => Outcome::Unknown { ask_in: Some(after) },
                    OnLapse::Rerun => Outcome::Failed { failures, why: why.clone() },
                };
                (Class::Unknown, Answer(Bytes::from(why)), outcome)
            }
        };
        match running.end(class, record).await {
            Ok(Finished::Stored) => outcome,
            // Not on record yet, so not acked yet: by the time it comes back, it is.
            Ok(Finished::Pending) if class == Class::Keep => Outcome::InFlight { retry_after: LOOK },
            Ok(Finished::Pending) => outcome,
            Ok(Finished::Superseded(prior)) => judge(prior),
            Err(error) => match store_failed(&id, &error) {
                Outcome::StoreDown if error.kind() != ErrorKind::Unavailable => {
                    Outcome::Failed { failures, why: error.to_string() }
                }
                outcome => outcome,
            },
        }
    }
}

fn store_failed(id: &RecordId, error: &StoreError) -> Outcome {
    tracing::warn!(record = %id, error = error as &dyn std::error::Error, "the record of a message can't be kept");
    match error.kind() {
        ErrorKind::Corrupt => Outcome::Poison(Reason::Unreadable),
        _ => Outcome::StoreDown,
    }
}

/// What an earlier delivery means for this one.
fn judge(prior: Prior) -> Outcome {
    match prior {
        Prior::Replay(_) | Prior::Refused(Refusal::Duplicate) => Outcome::Duplicate,
        Prior::Refused(refusal) => match refusal {
            Refusal::InProgress { retry_after } => Outcome::InFlight { retry_after },
            Refusal::Mismatch => Outcome::Poison(Reason::Mismatch),
            Refusal::Unknown { retry_after, .. } => Outcome::Unknown { ask_in: retry_after },
            Refusal::Unreadable => Outcome::Poison(Reason::Unreadable),
            // A store that failed; and whatever a later release may refuse for: nothing ran, so nothing is acked.
            _ => Outcome::StoreDown,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use onlyonce_core::{Classify, MemoryStore, Settings};
    use onlyonce_testkit::{Fault, FaultyStore, Op};
    use parking_lot::Mutex;

    use super::*;
    use crate::handler::Batch;

    #[derive(Debug)]
    struct TimedOut;

    impl Classify for TimedOut {
        fn classify(&self) -> Class {
            Class::Unknown
        }

        fn save(&self) -> Result<Bytes, onlyonce_core::codec::CodecError> {
            Ok(Bytes::new())
        }

        fn revive(_: Bytes) -> Result<Self, onlyonce_core::codec::CodecError> {
            Ok(Self)
        }
    }

    const LEASE: Duration = Duration::from_millis(200);

    /// Its handler ends in doubt the first time it is called, and well after that; it writes down what it was called with.
    struct Stage {
        processor: Processor,
        handled: Arc<Mutex<Vec<String>>>,
    }

    impl Stage {
        fn new(
            store: Arc<dyn onlyonce_core::Store>,
            max_run: Duration,
            ask: impl Fn(Job) -> BoxFuture<Recovery<()>> + Send + Sync + 'static,
        ) -> Self {
            let (handled, calls) = (Arc::new(Mutex::new(Vec::new())), AtomicU32::new(0));
            let seen = Arc::clone(&handled);
            let handler = move |jobs: Vec<Job>| {
                seen.lock().extend(jobs.iter().map(|job| job.message().id().unwrap_or_default().to_owned()));
                let first = calls.fetch_add(1, Ordering::SeqCst) == 0;
                let ended: Vec<_> = jobs.iter().map(|_| if first { Err(TimedOut) } else { Ok(()) }).collect();
                std::future::ready(ended)
            };
            let on_lapse = OnLapse::Ask { after: Duration::from_millis(1) };
            let settings = Settings { on_lapse, lease: LEASE, max_run, ..Settings::default() };
            let scope = Scope::new("stock").unwrap();
            let processor = Processor {
                once: Idempotency::builder_shared(store).settings(settings).build().unwrap(),
                group: "stock".into(),
                name: "decrement".into(),
                scope_hash: Hash16::of_scope(&scope),
                scope,
                operation: Operation::new("decrement").unwrap(),
                route: "consume decrement".into(),
                identify: Identify::default(),
                compare: Compare::Payload,
                ask: Some(Arc::new(ask)),
                handler: Handler::many(Batch { max: 2, linger: Duration::ZERO }, handler),
            };
            Self { processor, handled }
        }

        async fn process(&self, ids: &[&str]) -> Vec<Outcome> {
            let messages = ids.iter().map(|id| Message::new("orders", "x").with_id(*id)).collect();
            let processing = self.processor.process(messages);
            let processed = tokio::time::timeout(Duration::from_secs(20), processing).await;
            processed.unwrap().into_iter().map(|(outcome, _)| outcome).collect()
        }
    }

    #[tokio::test]
    async fn a_message_whose_lease_is_lost_before_its_batch_begins_is_not_handled() {
        let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
        let slow = |job: Job| {
            let asked: BoxFuture<_> = Box::pin(async move {
                tokio::time::sleep(3 * LEASE).await;
                if job.message().id() == Some("asked") { Recovery::Done(()) } else { Recovery::NotDone }
            });
            asked
        };
        let stage = Stage::new(Arc::clone(&store) as _, 100 * LEASE, slow);
        assert!(matches!(stage.process(&["asked"]).await[..], [Outcome::Unknown { .. }]));
        tokio::time::sleep(Duration::from_millis(10)).await;
        // Its neighbour is claimed, and nobody can renew that while the hook is being asked.
        store.always(Op::Renew, Fault::Unavailable);
        let outcomes = stage.process(&["asked", "fresh"]).await;
        assert!(matches!(outcomes[1], Outcome::InFlight { .. }), "{outcomes:?}");
        assert_eq!(*stage.handled.lock(), ["asked"], "by then somebody else may have it");
        store.heal();
        for _ in 0..100 {
            match stage.process(&["fresh"]).await[..] {
                [Outcome::Done] => return,
                _ => tokio::time::sleep(LEASE).await,
            }
        }
        panic!("nobody had it, and nobody can have it");
    }

    #[tokio::test]
    async fn a_hook_that_never_says_what_it_found_found_nothing() {
        let never = |_| {
            let asked: BoxFuture<_> = Box::pin(std::future::pending());
            asked
        };
        let stage = Stage::new(Arc::new(MemoryStore::new()), LEASE, never);
        for _ in 0..2 {
            let outcomes = stage.process(&["asked"]).await;
            assert!(matches!(outcomes[..], [Outcome::Unknown { .. }]), "{outcomes:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(*stage.handled.lock(), ["asked"]);
    }
}
