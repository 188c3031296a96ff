//! The words that cross the seam between the engine and a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::fingerprint::Fingerprint;
use crate::hex;
use crate::key::Hash16;

/// A number that rises with every attempt at a record, also over its deletion: `max(previous + 1, backend time in µs)`.
///
/// Send it along with the effect; a resource that refuses a lower fence than it has seen can't be written by a zombie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence(pub u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A nonce that marks one attempt, made before its first call, so that a repeated call is recognised as its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner([u8; 16]);

impl Owner {
    /// A new owner, unlike every other.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// An owner read back from a store.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner(")?;
        hex::write(f, &self.0)?;
        f.write_str(")")
    }
}

/// Which attempt a call speaks for: compared on the owner and, where it is known, the fence.
///
/// The fence is unknown only to an attempt whose begin was never answered; it may still release what it may have taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttemptId {
    /// The nonce of the attempt.
    pub owner: Owner,
    /// The fence that its begin was given.
    pub fence: Option<Fence>,
}

/// What may be shown and searched of a call; never the raw key or scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Label {
    /// The route or operation, as a pattern: `POST /orders/{id}`.
    pub route: Arc<str>,
    /// The search digest of the key.
    pub key: Hash16,
    /// The search digest of the scope.
    pub scope: Hash16,
}

/// Whether a begin may take a record over whose attempt ended without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Takeover {
    /// A lapsed record stays as it is.
    Never,
    /// A lapsed record is taken over: the caller's word that running twice is harmless.
    Allowed,
    /// A released or lapsed record is taken over only if it is still at this fence.
    Seen(Fence),
}

/// A wish to run: everything that a begin writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The nonce of this attempt.
    pub owner: Owner,
    /// The digest of the payload.
    pub fingerprint: Fingerprint,
    /// How long the attempt may go on without a renewal.
    pub lease: Duration,
    /// How long the record is kept while it is not completed.
    pub retain_unsettled: Duration,
    /// What may be taken over.
    pub takeover: Takeover,
    /// What may be shown of the call.
    pub label: Label,
}

/// What an attempt was begun over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Over {
    /// There was no record, or only an expired one.
    Nothing,
    /// An attempt that was released: nothing had happened.
    Released,
    /// An attempt that ended without a word: its effect may have happened.
    Lapsed,
}

/// The answer to a begin.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Begin {
    /// The caller, and nobody else, may run.
    Acquired {
        /// The fence of this attempt.
        fence: Fence,
        /// Its number, from 1.
        attempt: u32,
        /// What it was begun over.
        over: Over,
    },
    /// Somebody was there before.
    Taken(Snapshot),
}

/// Stored bytes: what a completed call answers, or what was seen of an unknown one. Opaque to engine and stores.
///
/// Empty means that there is nothing to give back.
#[derive(Clone, PartialEq, Eq, Default, Hash)]
pub struct Answer(pub Bytes);

impl Answer {
    /// No answer is kept.
    #[must_use]
    pub const fn none() -> Self {
        Self(Bytes::new())
    }

    /// Whether there is nothing to give back.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Answer {
    // An answer may hold personal data; it does not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer(<{} bytes>)", self.0.len())
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It happened, and this is the answer from now on.
    Completed(Answer),
    /// It did not happen: the same call may run again.
    Released,
    /// Nobody can know whether it happened; this was seen of it.
    Unknown(Answer),
}

/// A verdict and how long to keep it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// How the attempt ended.
    pub verdict: Verdict,
    /// How long the record is kept from now on.
    pub retain: Duration,
}

impl Settlement {
    /// What can still be said where the store does not take the answer, or what was seen: how the attempt ended. `None` if
    /// there is no more in it than that.
    #[must_use]
    pub fn without_answer(&self) -> Option<Self> {
        let verdict = match &self.verdict {
            Verdict::Completed(answer) if !answer.is_none() => Verdict::Completed(Answer::none()),
            Verdict::Unknown(evidence) if !evidence.is_none() => Verdict::Unknown(Answer::none()),
            Verdict::Completed(_) | Verdict::Unknown(_) | Verdict::Released => return None,
        };
        Some(Self { verdict, retain: self.retain })
    }
}

/// Whether a compare-and-set took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settled {
    /// It took effect, or had done so before.
    Applied,
    /// The record has moved on; nothing was changed.
    Lost,
}

/// The state of a record, as its backend's clock judges it at the time of reading.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum State {
    /// An attempt runs, for at least that much longer unless it is renewed.
    Running {
        /// What is left of its lease.
        lease_left: Duration,
    },
    /// An attempt ended without a word, or with "unknown".
    Lapsed {
        /// Since when.
        since: Duration,
        /// What was seen of it, if anything.
        evidence: Answer,
    },
    /// The last attempt ended without an effect.
    Released,
    /// Done, with this answer.
    Completed(Answer),
}

/// A [`State`] without its contents, for filters and counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateKind {
    /// See [`State::Running`].
    Running,
    /// See [`State::Lapsed`].
    Lapsed,
    /// See [`State::Released`].
    Released,
    /// See [`State::Completed`].
    Completed,
}

impl State {
    /// The kind of this state.
    #[must_use]
    pub const fn kind(&self) -> StateKind {
        match self {
            Self::Running { .. } => StateKind::Running,
            Self::Lapsed { .. } => StateKind::Lapsed,
            Self::Released => StateKind::Released,
            Self::Completed(_) => StateKind::Completed,
        }
    }
}

/// A record as it was at one moment. Times are spans: only the backend's own clock judges.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// The state.
    pub state: State,
    /// The fence of the last attempt.
    pub fence: Fence,
    /// The digest of the payload.
    pub fingerprint: Fingerprint,
    /// How many attempts there were.
    pub attempts: u32,
    /// How long ago the first attempt began.
    pub age: Duration,
    /// How long the record will still be kept.
    pub expires_in: Duration,
    /// What may be shown of the call.
    pub label: Label,
}

/// Names one version of a record: it changes with every begin that is acquired and every settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Revision {
    /// The fence of the last attempt.
    pub fence: Fence,
    /// Whether that attempt was settled. Merely letting its lease pass changes no revision.
    pub settled: bool,
}

impl Snapshot {
    /// The revision to wait on with [`Store::changed`](crate::Store::changed) while an attempt runs.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        Revision { fence: self.fence, settled: !matches!(self.state, State::Running { .. }) }
    }
}
