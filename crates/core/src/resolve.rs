//! Ending the doubt about a record.

use crate::background;
use crate::engine::{Engine, Idempotency};
use crate::error::{ErrorKind, StoreError};
use crate::key::RecordId;
use crate::record::{
    Answer, AttemptId, Begin, Claim, Fence, Over, Owner, Settled, Settlement, State, Takeover, Verdict,
};
use crate::sequence::{self, SequenceKey};

impl Idempotency {
    /// Ends the doubt about a lapsed record that was seen at fence `seen`. Lost if it has moved on since.
    ///
    /// The record is kept as the settings of this handle say: use one with the settings of the call that it belongs to.
    ///
    /// # Errors
    /// If the store fails. Then look again before deciding again: the record may have moved to a new fence. Rejected if the record is
    /// the [mark](SequenceKey::is_mark) of a sequence, and it is said to have happened.
    ///
    /// # Cancel safety
    /// Dropped half-way, the doubt and what was seen are put back in the background.
    pub async fn resolve(
        &self,
        id: &RecordId,
        seen: Fence,
        resolution: Resolution,
    ) -> Result<Settled, StoreError> {
        let engine = self.engine();
        let (store, clock) = (&*engine.store, &*engine.clock);
        let Some(snapshot) = store.get(id).await? else { return Ok(Settled::Lost) };
        let State::Lapsed { evidence, .. } = snapshot.state else { return Ok(Settled::Lost) };
        if snapshot.fence != seen {
            return Ok(Settled::Lost);
        }
        let settings = self.settings();
        let is_mark = SequenceKey::is_mark(&snapshot.label.route);
        if is_mark && matches!(resolution, Resolution::Happened(_)) {
            let why = "it is the highest number of a sequence and no call: an answer would stop the sequence; say that it did not happen";
            return Err(StoreError::new(ErrorKind::Rejected, "sequence", "resolve", why));
        }
        // The highest number of a sequence is remembered for as long as when it was raised.
        let (retain, retain_unsettled) = if is_mark {
            (sequence::KEPT, sequence::KEPT)
        } else {
            (settings.retain, settings.retain_unsettled)
        };
        let claim = Claim {
            owner: Owner::random(),
            fingerprint: snapshot.fingerprint,
            lease: settings.lease,
            retain_unsettled,
            takeover: Takeover::Seen(seen),
            label: snapshot.label,
        };
        engine.way.keeper().ensure_running();
        let mut doubt = Doubt { engine, id, claim: &claim, evidence: Some(evidence) };
        let (begun, repeats) = background::insist_on_begin(store, clock, id, &claim).await;
        if !matches!(begun, Ok(Begin::Acquired { .. })) && !background::may_have_landed(&begun, repeats) {
            doubt.ends();
        }
        let (fence, verdict, told) = match begun? {
            Begin::Taken(_) => return Ok(Settled::Lost),
            Begin::Acquired { fence, over: Over::Lapsed, .. } => (fence, resolution.into(), Settled::Applied),
            // It expired in between: what was to be resolved is gone, and what this made instead is given back.
            Begin::Acquired { fence, .. } => (fence, Verdict::Released, Settled::Lost),
        };
        let retain = match verdict {
            Verdict::Completed(_) => retain,
            Verdict::Released | Verdict::Unknown(_) => retain_unsettled,
        };
        let attempt = AttemptId { owner: claim.owner, fence: Some(fence) };
        let how = Settlement { verdict, retain };
        let settled = background::insist_on_settle(store, clock, id, &attempt, &how).await?;
        doubt.ends();
        Ok(if settled == Settled::Applied { told } else { Settled::Lost })
    }
}

/// A doubt that is being ended. Unless that goes through, it is put back with what was seen.
struct Doubt<'a> {
    engine: &'a Engine,
    id: &'a RecordId,
    claim: &'a Claim,
    evidence: Option<Answer>,
}

impl Doubt<'_> {
    fn ends(&mut self) {
        self.evidence = None;
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        let Some(evidence) = self.evidence.take() else { return };
        let Engine { store, clock, tracker, way } = self.engine;
        let visit = tracker.enter_even_if_closed();
        way.keeper()
            .finish_later(background::undo_begin(store, clock, *self.id, self.claim, evidence, visit));
    }
}

/// What a person, or a program that knows, says about a lapsed record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// It happened, and this is the answer from now on.
    Happened(Answer),
    /// It did not happen: the same call may run again.
    DidNotHappen,
}

impl From<Resolution> for Verdict {
    fn from(resolution: Resolution) -> Self {
        match resolution {
            Resolution::Happened(answer) => Self::Completed(answer),
            Resolution::DidNotHappen => Self::Released,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Fingerprint, Hash16, Label, ManualClock, MemoryStore, Store as _};

    #[tokio::test]
    async fn the_mark_of_a_sequence_that_a_person_decides_on_is_remembered_as_long_as_before() {
        let clock = ManualClock::new();
        let store = std::sync::Arc::new(MemoryStore::new().with_clock(clock.clone()));
        let hash = Hash16::from_bytes([1; 16]);
        let claim = Claim {
            owner: Owner::random(),
            fingerprint: Fingerprint::empty(),
            lease: Duration::from_secs(1),
            retain_unsettled: sequence::KEPT,
            takeover: Takeover::Never,
            label: Label { route: "sequence 5 @1".into(), key: hash, scope: hash },
        };
        assert!(SequenceKey::is_mark(&claim.label.route));
        let id = RecordId::from_bytes([7; 32]);
        let Begin::Acquired { fence, .. } = store.begin(&id, &claim).await.unwrap() else {
            panic!("it is new")
        };
        clock.advance(Duration::from_secs(2));
        let once = Idempotency::builder_shared(store.clone()).clock(clock).build().unwrap();
        let happened = super::Resolution::Happened(Answer::none());
        let refused = once.resolve(&id, fence, happened).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Rejected, "no number would ever get past it");
        let resolved = once.resolve(&id, fence, super::Resolution::DidNotHappen).await.unwrap();
        assert_eq!(resolved, Settled::Applied);
        let kept = store.get(&id).await.unwrap().unwrap().expires_in;
        assert!(kept > sequence::KEPT / 2, "{kept:?}");
    }
}
