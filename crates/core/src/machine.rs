//! The life of a record as pure functions over its state and the time: what a store in this process has to do.
//!
//! ```text
//!  absent ──begin──▶ running ──settle──▶ completed │ released │ unknown
//!                       └── lease over ──▶ lapsed (read as such; nothing is written)
//! ```
//!
//! [`MemoryStore`](crate::MemoryStore) applies these under a lock; the embedded store applies them on its writer
//! thread. A store on a server says the same in the server's language, and the laws compare the two.

use std::time::Duration;

use crate::clock::Moment;
use crate::fingerprint::Fingerprint;
use crate::record::{
    AttemptId, Begin, Claim, Fence, Label, Over, Owner, Revision, Settled, Settlement, Snapshot, State,
    Takeover, Verdict,
};

/// The time of one step: the moment, and the fence that a new attempt must at least have.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The moment by which leases and expiry are judged.
    pub moment: Moment,
    /// The lowest fence to give out.
    pub fence_floor: Fence,
}

/// A record with its times as moments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// The digest of the payload.
    pub fingerprint: Fingerprint,
    /// What may be shown of the call.
    pub label: Label,
    /// The fence of the last attempt.
    pub fence: Fence,
    /// The nonce of the last attempt.
    pub owner: Owner,
    /// How many attempts there were.
    pub attempts: u32,
    /// What the last attempt was begun over; a repeated begin must hear the same again.
    pub over: Over,
    /// How the last attempt was settled, and when.
    pub settled: Option<(Verdict, Moment)>,
    /// When the lease of the last attempt ends.
    pub lease_until: Moment,
    /// When the first attempt began.
    pub created: Moment,
    /// When the record is no longer kept. A live lease outlasts it.
    pub expires: Moment,
}

/// What a step makes of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "moving a record once is cheaper than a box for every call")]
pub enum Step<T> {
    /// Write this record, then give this answer.
    Write(Record, T),
    /// Nothing changes.
    Keep(T),
}

impl Record {
    /// Whether the record counts as absent.
    #[must_use]
    pub fn is_expired(&self, now: Moment) -> bool {
        now >= self.expires_at()
    }

    /// When the record will count as absent if nobody touches it.
    #[must_use]
    pub fn expires_at(&self) -> Moment {
        if self.settled.is_none() { self.expires.max(self.lease_until) } else { self.expires }
    }

    /// The record as it is kept where the wall clock was set forward at `stepped`: if it is older, once more for as long as it was to be
    /// kept, but never for more than twice as long, however often the clock is set. It is not to be written like that, or it would be
    /// kept again and again.
    #[must_use]
    pub fn kept_since(mut self, stepped: Moment) -> Self {
        if self.written() < stepped {
            let retention = self.expires.since(self.written());
            self.expires = self.expires.max(stepped.min(self.expires).plus(retention));
        }
        self
    }

    /// When it was settled; when it was first begun, if it is not.
    #[must_use]
    pub fn written(&self) -> Moment {
        self.settled.as_ref().map_or(self.created, |(_, at)| *at)
    }

    /// The version of the record that is stored.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        Revision { fence: self.fence, settled: self.settled.is_some() }
    }

    /// The record as others may see it now.
    #[must_use]
    pub fn snapshot(&self, now: Moment) -> Snapshot {
        Snapshot {
            state: self.state(now),
            fence: self.fence,
            fingerprint: self.fingerprint,
            attempts: self.attempts,
            age: now.since(self.created),
            expires_in: self.expires_at().since(now),
            label: self.label.clone(),
        }
    }

    fn state(&self, now: Moment) -> State {
        match &self.settled {
            Some((Verdict::Completed(answer), _)) => State::Completed(answer.clone()),
            Some((Verdict::Released, _)) => State::Released,
            Some((Verdict::Unknown(evidence), at)) => {
                State::Lapsed { since: now.since(*at), evidence: evidence.clone() }
            }
            None if now < self.lease_until => State::Running { lease_left: self.lease_until.since(now) },
            None => State::Lapsed { since: now.since(self.lease_until), evidence: Default::default() },
        }
    }

    fn is_running(&self, now: Moment) -> bool {
        self.settled.is_none() && now < self.lease_until
    }

    fn belongs_to(&self, attempt: &AttemptId) -> bool {
        self.owner == attempt.owner && attempt.fence.is_none_or(|fence| fence == self.fence)
    }

    /// What the next attempt would be begun over, if `claim` may take this record.
    fn takeable_by(&self, claim: &Claim, now: Moment) -> Option<Over> {
        if self.owner == claim.owner || self.fingerprint != claim.fingerprint {
            return None;
        }
        let over = match &self.settled {
            Some((Verdict::Completed(_), _)) => return None,
            Some((Verdict::Released, _)) => Over::Released,
            Some((Verdict::Unknown(_), _)) => Over::Lapsed,
            None if now < self.lease_until => return None,
            None => Over::Lapsed,
        };
        let allowed = match claim.takeover {
            Takeover::Never => over == Over::Released,
            Takeover::Allowed => true,
            Takeover::Seen(fence) => fence == self.fence,
        };
        allowed.then_some(over)
    }
}

/// Takes the record for `claim`, or says who has it.
#[must_use]
pub fn begin(record: Option<&Record>, claim: &Claim, now: Now) -> Step<Begin> {
    let earlier = record.filter(|record| !record.is_expired(now.moment));
    let over = match earlier {
        None => Over::Nothing,
        Some(record) if record.owner == claim.owner && record.is_running(now.moment) => {
            let again = Record { lease_until: now.moment.plus(claim.lease), ..record.clone() };
            let answer = Begin::Acquired { fence: again.fence, attempt: again.attempts, over: again.over };
            return Step::Write(again, answer);
        }
        Some(record) => match record.takeable_by(claim, now.moment) {
            Some(over) => over,
            None => return Step::Keep(Begin::Taken(record.snapshot(now.moment))),
        },
    };
    let next_fence = record.map_or(now.fence_floor, |record| now.fence_floor.max(Fence(record.fence.0 + 1)));
    let taken = Record {
        fingerprint: claim.fingerprint,
        label: claim.label.clone(),
        fence: next_fence,
        owner: claim.owner,
        attempts: earlier.map_or(1, |record| record.attempts.saturating_add(1)),
        over,
        settled: None,
        lease_until: now.moment.plus(claim.lease),
        created: earlier.map_or(now.moment, |record| record.created),
        expires: now.moment.plus(claim.retain_unsettled),
    };
    let answer = Begin::Acquired { fence: taken.fence, attempt: taken.attempts, over };
    Step::Write(taken, answer)
}

/// Extends the lease of an attempt that still runs.
#[must_use]
pub fn renew(record: Option<&Record>, attempt: &AttemptId, lease: Duration, now: Moment) -> Step<Settled> {
    match record {
        Some(record) if record.belongs_to(attempt) && record.is_running(now) => {
            let renewed = Record { lease_until: now.plus(lease), ..record.clone() };
            Step::Write(renewed, Settled::Applied)
        }
        _ => Step::Keep(Settled::Lost),
    }
}

/// Ends an attempt; also one whose lease is over, as long as nobody took the record over.
#[must_use]
pub fn settle(record: Option<&Record>, attempt: &AttemptId, how: &Settlement, now: Moment) -> Step<Settled> {
    let Some(record) = record.filter(|record| !record.is_expired(now) && record.belongs_to(attempt)) else {
        return Step::Keep(Settled::Lost);
    };
    match &record.settled {
        None => {
            let settled = Some((how.verdict.clone(), now));
            let expires = now.plus(how.retain);
            Step::Write(Record { settled, expires, ..record.clone() }, Settled::Applied)
        }
        Some((verdict, _)) if *verdict == how.verdict => Step::Keep(Settled::Applied),
        Some(_) => Step::Keep(Settled::Lost),
    }
}

/// Whether the record may be deleted by somebody who saw it at fence `seen`.
#[must_use]
pub fn forget(record: Option<&Record>, seen: Fence, now: Moment) -> Settled {
    match record {
        Some(record) if record.fence == seen && !record.is_running(now) && !record.is_expired(now) => {
            Settled::Applied
        }
        _ => Settled::Lost,
    }
}
