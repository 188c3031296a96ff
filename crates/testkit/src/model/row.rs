//! One row of the model, and the questions that the contract asks about it.

use std::time::Duration;

use onlyonce_core::{
    AttemptId, Claim, Fence, Fingerprint, Label, Over, Owner, Snapshot, State, Takeover, Verdict,
};

use super::Flaw;

/// Time since the clock's origin.
pub(super) type Time = Duration;

#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) payload: Fingerprint,
    pub(super) label: Label,
    pub(super) owner: Owner,
    pub(super) fence: u64,
    pub(super) attempts: u32,
    pub(super) over: Over,
    pub(super) born: Time,
    pub(super) begun: Time,
    pub(super) lease_end: Time,
    /// How and when the last attempt ended, if it said so.
    pub(super) word: Option<(Verdict, Time)>,
    pub(super) keep_until: Time,
}

/// What the clock makes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    Lapsed,
    Released,
    Completed,
}

impl Row {
    pub(super) fn phase(&self, now: Time) -> Phase {
        match self.word {
            Some((Verdict::Completed(_), _)) => Phase::Completed,
            Some((Verdict::Released, _)) => Phase::Released,
            Some((Verdict::Unknown(_), _)) => Phase::Lapsed,
            None if self.lease_end > now => Phase::Running,
            None => Phase::Lapsed,
        }
    }

    /// The last moment at which the row is still there.
    pub(super) fn end(&self, flaw: Option<Flaw>) -> Time {
        match (&self.word, flaw) {
            (None, Some(Flaw::ExpiresWithLease)) => self.lease_end,
            (None, Some(Flaw::ExpiresUnderLease)) => self.keep_until,
            (None, _) if self.lease_end > self.keep_until => self.lease_end,
            (Some((Verdict::Released | Verdict::Unknown(_), _)), Some(Flaw::UnsettledNeverExpires)) => {
                Time::MAX
            }
            _ => self.keep_until,
        }
    }

    pub(super) fn is_spoken_for_by(&self, attempt: &AttemptId, flaw: Option<Flaw>) -> bool {
        let same_fence = match attempt.fence {
            Some(Fence(fence)) => fence == self.fence || flaw == Some(Flaw::FenceUnchecked),
            None => flaw != Some(Flaw::FenceDemanded),
        };
        same_fence && (attempt.owner == self.owner || flaw == Some(Flaw::OwnerIgnored))
    }

    /// Whether somebody new may begin: after a release anybody, after a lapse who is allowed to.
    pub(super) fn yields_to(&self, claim: &Claim, now: Time, flaw: Option<Flaw>) -> bool {
        let same_payload = match flaw {
            Some(Flaw::TakeoverWithAnotherPayload) => true,
            Some(Flaw::PayloadVersionIgnored) => self.payload.digest() == claim.fingerprint.digest(),
            _ => self.payload == claim.fingerprint,
        };
        let reacquires = matches!(flaw, Some(Flaw::LateBeginReacquires | Flaw::CompletedReacquired));
        let late_copy = claim.owner == self.owner && !reacquires;
        let allowed = match (self.phase(now), claim.takeover) {
            (Phase::Running, Takeover::Allowed) => flaw == Some(Flaw::RunningTakenOver),
            (Phase::Running, _) => false,
            (Phase::Completed, _) if flaw == Some(Flaw::CompletedReacquired) => claim.owner == self.owner,
            (Phase::Completed, Takeover::Allowed) => flaw == Some(Flaw::CompletedTakenOver),
            (Phase::Completed, _) => false,
            (_, Takeover::Seen(_)) if flaw == Some(Flaw::SeenFenceUnchecked) => true,
            (_, Takeover::Seen(Fence(seen))) => seen == self.fence,
            (_, Takeover::Allowed) => true,
            (Phase::Released, Takeover::Never) => flaw != Some(Flaw::ReleasedIsHeld),
            (Phase::Lapsed, Takeover::Never) => flaw == Some(Flaw::TakeoverAlwaysAllowed),
        };
        same_payload && !late_copy && allowed
    }

    pub(super) fn show(&self, now: Time, flaw: Option<Flaw>) -> Snapshot {
        let state = match (&self.word, self.phase(now)) {
            (Some((Verdict::Completed(answer), _)), _) => State::Completed(answer.clone()),
            (Some((Verdict::Released, _)), _) => State::Released,
            (Some((Verdict::Unknown(seen), at)), _) => {
                State::Lapsed { since: now.saturating_sub(self.lapsed_at(*at, flaw)), evidence: seen.clone() }
            }
            (None, Phase::Running) => State::Running { lease_left: self.lease_end.saturating_sub(now) },
            (None, _) => State::Lapsed {
                since: now.saturating_sub(self.lapsed_at(self.lease_end, flaw)),
                evidence: onlyonce_core::Answer::none(),
            },
        };
        Snapshot {
            state,
            fence: Fence(self.fence),
            fingerprint: self.payload,
            attempts: self.attempts,
            age: now.saturating_sub(self.born),
            expires_in: self.end(flaw).saturating_sub(now),
            label: self.label.clone(),
        }
    }

    fn lapsed_at(&self, end: Time, flaw: Option<Flaw>) -> Time {
        if flaw == Some(Flaw::LapseFromBegin) { self.begun } else { end }
    }
}
