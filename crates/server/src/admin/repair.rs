//! Changes by a person, through the API and straight on a store alike: written down, made, and what became of it written down.

use onlyonce::{Idempotency, Listed, Resolution, SequenceKey, Settled, State, StateKind, Store, StoreError};

use super::audit::{Audit, Change};
use super::view::{Outcome, StateName};

/// What is to be done to a record.
#[derive(Debug, Clone)]
pub(crate) enum Deed {
    /// Ends the doubt; the status is that of the answer, if there is one.
    Decide(Resolution, Option<u16>),
    Forget,
}

impl Deed {
    /// Which way a doubt is ended.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Decide(Resolution::Happened(_), _) => Some(Outcome::Completed),
            Self::Decide(Resolution::DidNotHappen, _) => Some(Outcome::NotDone),
            Self::Forget => None,
        }
    }
}

/// A change that a person wants.
#[derive(Debug, Clone)]
pub(crate) struct Repair {
    /// What the person called it.
    pub(crate) action: &'static str,
    pub(crate) deed: Deed,
    pub(crate) who: String,
    pub(crate) why: String,
    /// The fence and the state that were seen.
    pub(crate) fence: Option<u64>,
    pub(crate) state: Option<StateName>,
}

/// Why a record was not changed, or may not have been.
#[derive(Debug)]
pub(crate) enum Unrepaired {
    /// It is not what was seen any more.
    Moved,
    /// An attempt runs.
    Runs,
    /// There is no doubt about its outcome.
    Known(StateName),
    /// It is the mark of a sequence: no call, and there can be no answer.
    Mark,
    /// The change could not be written down, so it was not made.
    Unwritten(std::io::Error),
    /// The store failed on the way: nobody knows.
    Store(StoreError),
}

impl Repair {
    /// Changes the record that was found.
    pub(crate) async fn apply(
        &self,
        once: &Idempotency,
        store: &dyn Store,
        audit: &Audit,
        found: &Listed,
    ) -> Result<(), Unrepaired> {
        let kind = found.snapshot.state.kind();
        let moved = self.fence.is_some_and(|fence| fence != found.snapshot.fence.0)
            || self.state.is_some_and(|state| state.kind() != kind);
        match (&self.deed, kind) {
            _ if moved => return Err(Unrepaired::Moved),
            (Deed::Decide(Resolution::Happened(_), _), _)
                if SequenceKey::is_mark(&found.snapshot.label.route) =>
            {
                return Err(Unrepaired::Mark);
            }
            (Deed::Forget, StateKind::Running) => return Err(Unrepaired::Runs),
            (Deed::Decide(..), StateKind::Running | StateKind::Completed | StateKind::Released) => {
                return Err(Unrepaired::Known(StateName::of(kind)));
            }
            (Deed::Forget, _) | (Deed::Decide(..), StateKind::Lapsed) => {}
        }
        audit.write(&self.noted(found, "begun", None)).map_err(Unrepaired::Unwritten)?;
        let done = self.work(once, store, found).await;
        let (result, error) = match &done {
            Ok(Settled::Applied) => ("done", None),
            Ok(Settled::Lost) => ("lost", None),
            Err(error) => ("failed", Some(error.to_string())),
        };
        // That it was begun is on disk. What has happened can't be taken back because the rest can't be written.
        if let Err(error) = audit.write(&self.noted(found, result, error.as_deref())) {
            tracing::error!(%error, record = %found.id, result, "the audit log can't be written");
        }
        match done.map_err(Unrepaired::Store)? {
            Settled::Applied => Ok(()),
            Settled::Lost => Err(Unrepaired::Moved),
        }
    }

    async fn work(
        &self,
        once: &Idempotency,
        store: &dyn Store,
        found: &Listed,
    ) -> Result<Settled, StoreError> {
        let (id, fence) = (&found.id, found.snapshot.fence);
        match &self.deed {
            Deed::Decide(resolution, _) => once.resolve(id, fence, resolution.clone()).await,
            Deed::Forget if found.snapshot.state.kind() != StateKind::Lapsed => once.forget(id, fence).await,
            Deed::Forget => {
                // Its attempt may still end, late and at the same fence: an answer would be forgotten that nobody has seen.
                if once.resolve(id, fence, Resolution::DidNotHappen).await? == Settled::Lost {
                    return Ok(Settled::Lost);
                }
                match store.get(id).await? {
                    Some(released) if released.state == State::Released => {
                        // Lost only to a call that runs since: what was seen is gone all the same.
                        once.forget(id, released.fence).await?;
                    }
                    Some(_) | None => {}
                }
                Ok(Settled::Applied)
            }
        }
    }

    fn noted<'a>(&'a self, found: &Listed, result: &'a str, error: Option<&'a str>) -> Change<'a> {
        let status = match &self.deed {
            Deed::Decide(_, status) => *status,
            Deed::Forget => None,
        };
        Change {
            action: self.action,
            outcome: self.deed.outcome(),
            status,
            record: found.id.to_string(),
            was: StateName::of(found.snapshot.state.kind()),
            fence: found.snapshot.fence.0,
            who: &self.who,
            why: &self.why,
            result,
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use onlyonce::{
        Answer, AttemptId, Begin, Claim, Fingerprint, Hash16, Key, Label, MemoryStore, Owner, RecordId,
        Scope, Settlement, Snapshot, Takeover, Verdict,
    };
    use onlyonce_testkit::{Fault, FaultyStore, Op};

    use super::*;

    const ID: RecordId = RecordId::from_bytes([7; 32]);

    /// A record that has lapsed, and the attempt that may still end.
    async fn lapsed(store: &dyn Store) -> (Listed, AttemptId) {
        let key = Hash16::of_key(&Key::new("k").unwrap());
        let label = Label { route: "POST /pay".into(), key, scope: Hash16::of_scope(&Scope::shared()) };
        let claim = Claim {
            owner: Owner::random(),
            fingerprint: Fingerprint::empty(),
            lease: Duration::from_millis(1),
            retain_unsettled: Duration::from_secs(3600),
            takeover: Takeover::Never,
            label,
        };
        let begun = store.begin(&ID, &claim).await.unwrap();
        let Begin::Acquired { fence, .. } = begun else { panic!("{begun:?}") };
        loop {
            let snapshot = store.get(&ID).await.unwrap().unwrap();
            if snapshot.state.kind() == StateKind::Lapsed {
                return (Listed { id: ID, snapshot }, AttemptId { owner: claim.owner, fence: Some(fence) });
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn repair(deed: Deed, seen: &Snapshot) -> Repair {
        let (who, why) = ("ann".into(), "r".into());
        let state = Some(StateName::of(seen.state.kind()));
        Repair { action: "forget", deed, who, why, fence: Some(seen.fence.0), state }
    }

    fn audit_in(folder: &tempfile::TempDir) -> (Audit, std::path::PathBuf) {
        let file = folder.path().join("audit.log");
        (Audit::open(&file).unwrap(), file)
    }

    #[tokio::test]
    async fn what_has_ended_since_it_was_seen_is_not_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let (audit, _) = audit_in(&folder);
        let store = Arc::new(MemoryStore::new());
        let once = Idempotency::builder_shared(Arc::clone(&store) as Arc<dyn Store>).build().unwrap();
        let (seen, attempt) = lapsed(&*store).await;
        let answer = Settlement {
            verdict: Verdict::Completed(Answer("receipt 7".into())),
            retain: Duration::from_secs(3600),
        };
        assert_eq!(store.settle(&ID, &attempt, &answer).await.unwrap(), Settled::Applied);
        let forget = repair(Deed::Forget, &seen.snapshot);
        // Between the look at the record and the change, and before.
        for found in [&seen, &Listed { id: ID, snapshot: store.get(&ID).await.unwrap().unwrap() }] {
            let done = forget.apply(&once, &*store, &audit, found).await;
            assert!(matches!(done, Err(Unrepaired::Moved)), "{done:?}");
        }
        assert_eq!(store.get(&ID).await.unwrap().unwrap().state.kind(), StateKind::Completed);
    }

    #[tokio::test]
    async fn an_attempt_that_ends_late_can_not_bring_back_what_was_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let (audit, _) = audit_in(&folder);
        let store = Arc::new(MemoryStore::new());
        let once = Idempotency::builder_shared(Arc::clone(&store) as Arc<dyn Store>).build().unwrap();
        let (seen, attempt) = lapsed(&*store).await;
        repair(Deed::Forget, &seen.snapshot).apply(&once, &*store, &audit, &seen).await.unwrap();
        assert_eq!(store.get(&ID).await.unwrap(), None);
        let answer = Settlement { verdict: Verdict::Released, retain: Duration::from_secs(1) };
        assert_eq!(store.settle(&ID, &attempt, &answer).await.unwrap(), Settled::Lost);
    }

    #[tokio::test]
    async fn a_change_that_fails_half_way_is_told_as_such_in_the_audit_log() {
        let folder = tempfile::tempdir().unwrap();
        let (audit, file) = audit_in(&folder);
        let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
        let once = Idempotency::builder_shared(Arc::clone(&store) as Arc<dyn Store>).build().unwrap();
        let (seen, _) = lapsed(&*store).await;
        store.always(Op::Begin, Fault::Unavailable);
        let decide = repair(Deed::Decide(Resolution::DidNotHappen, None), &seen.snapshot);
        let done = decide.apply(&once, &*store, &audit, &seen).await;
        assert!(matches!(done, Err(Unrepaired::Store(_))), "{done:?}");
        let written = std::fs::read_to_string(file).unwrap();
        assert!(
            written.contains("\"result\":\"begun\"") && written.contains("\"result\":\"failed\""),
            "{written}"
        );
    }

    #[tokio::test]
    async fn what_can_not_be_written_down_is_not_done() {
        let store = Arc::new(MemoryStore::new());
        let once = Idempotency::builder_shared(Arc::clone(&store) as Arc<dyn Store>).build().unwrap();
        let (seen, _) = lapsed(&*store).await;
        let full = Audit::open(std::path::Path::new("/dev/full")).unwrap();
        let done = repair(Deed::Forget, &seen.snapshot).apply(&once, &*store, &full, &seen).await;
        assert!(matches!(done, Err(Unrepaired::Unwritten(_))), "{done:?}");
        assert_eq!(store.get(&ID).await.unwrap().unwrap().fence, seen.snapshot.fence);
    }
}
