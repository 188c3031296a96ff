//! The seam: what a backend has to do, and nothing more.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::StoreError;
use crate::key::{Hash16, RecordId};
use crate::record::{
    AttemptId, Begin, Claim, Fence, Revision, Settled, Settlement, Snapshot, State, StateKind,
};

/// A place where records live. Stores do atomicity; judgement is left to [`policy`](crate::policy).
///
/// What a store answers is stated by the laws of `onlyonce-testkit`, which every store passes against its real server.
/// Every method is one atomic step, judged by the backend's own clock, and safe to repeat. There are no capability
/// flags, and a store does not retry underneath: it says with [`ErrorKind`](crate::ErrorKind) what a failure left behind.
///
/// # Cancel safety
/// A dropped call may or may not have happened, as after [`ErrorKind::Ambiguous`](crate::ErrorKind::Ambiguous).
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Takes the record if it is absent or expired, or if it was released or has lapsed **with the same fingerprint** and
    /// `claim.takeover` allows it. Exactly one of many concurrent callers acquires it.
    ///
    /// Repeating it with the same owner while that attempt runs is acquired again, with the same fence and the same
    /// [`Over`](crate::Over), and renews the lease. An owner that has settled or lapsed can't reacquire by a late copy of
    /// its begin.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) also when the store is full.
    async fn begin(&self, id: &RecordId, claim: &Claim) -> Result<Begin, StoreError>;

    /// Lets the attempt run for `lease` from now. Lost if the lease is over: others may have been told so.
    ///
    /// # Errors
    /// If the backend fails.
    async fn renew(&self, id: &RecordId, attempt: &AttemptId, lease: Duration)
    -> Result<Settled, StoreError>;

    /// Ends the attempt, also after its lease is over if nobody took the record over. Repeating the same verdict of the
    /// same attempt is applied again; any other is lost, so that a zombie can't overwrite what a person resolved.
    ///
    /// # Errors
    /// If the backend fails. A full store still takes the settlement of a record that it has.
    async fn settle(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        how: &Settlement,
    ) -> Result<Settled, StoreError>;

    /// Reads the record; an expired one is absent.
    ///
    /// # Errors
    /// If the backend fails or the record can't be read.
    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError>;

    /// Deletes the record if it is still at fence `seen` and nothing runs.
    ///
    /// # Errors
    /// If the backend fails.
    async fn forget(&self, id: &RecordId, seen: Fence) -> Result<Settled, StoreError>;

    /// Deletes at most `limit` expired records and says how many; fewer than `limit` means that none is left.
    ///
    /// # Errors
    /// If the backend fails.
    async fn sweep(&self, limit: u32) -> Result<u32, StoreError>;

    /// Whether a new call could begin, as far as the store knows without asking a server.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if not for the moment, [`Rejected`](crate::ErrorKind::Rejected) if not before
    /// this process is started again.
    fn ready(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Ends when the record is no longer at `seen` by a begin, a settlement or a deletion on purpose, or after `timeout`: that it
    /// expired wakes nobody. It may end early; the caller looks again.
    async fn changed(&self, id: &RecordId, seen: Revision, timeout: Duration);
}

/// Looking through a store, for people and tools; not needed to run calls.
#[async_trait]
pub trait Inspect: Store {
    /// The records that match, in a stable order, at most `limit`, from `after` on. Of their answers there is no more than the
    /// [beginning](Listed::ANSWER_BYTES), here and in [`lapsed`](Self::lapsed).
    ///
    /// # Errors
    /// If the backend fails, or the cursor is not one of its own.
    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: u32) -> Result<Page, StoreError>;

    /// How many records there are in each state.
    ///
    /// # Errors
    /// If the backend fails.
    async fn count(&self) -> Result<BTreeMap<StateKind, u64>, StoreError>;

    /// Records that need a person: lapsed, the one that began first at the head, at most `limit`.
    ///
    /// # Errors
    /// If the backend fails.
    async fn lapsed(&self, limit: u32) -> Result<Vec<Listed>, StoreError>;

    /// Counts what needs a person, up to `limit`, without reading more of it than that: cheap enough to be asked every few
    /// seconds.
    ///
    /// # Errors
    /// If the backend fails.
    async fn unresolved(&self, limit: u32) -> Result<Unresolved, StoreError>;
}

/// How much needs a person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unresolved {
    /// How many records, or the limit if there are more.
    pub count: u64,
    /// How many of them nothing was seen of: mostly because the process died.
    pub silent: u64,
    /// How long ago the first attempt of the oldest began.
    pub oldest: Option<Duration>,
}

impl<'a> FromIterator<&'a Snapshot> for Unresolved {
    /// Counts these, which must have lapsed.
    fn from_iter<T: IntoIterator<Item = &'a Snapshot>>(lapsed: T) -> Self {
        let mut all = Self::default();
        for snapshot in lapsed {
            all.count += 1;
            let is_silent = matches!(&snapshot.state, State::Lapsed { evidence, .. } if evidence.is_none());
            all.silent += u64::from(is_silent);
            all.oldest = all.oldest.max(Some(snapshot.age));
        }
        all
    }
}

/// Which records to list; what is `None` does not matter.
///
/// ```
/// use onlyonce_core::{Filter, StateKind};
/// let unknown = Filter { state: Some(StateKind::Lapsed), ..Filter::default() };
/// assert!(unknown.route.is_none());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only records in this state.
    pub state: Option<StateKind>,
    /// Only records of this route.
    pub route: Option<Arc<str>>,
    /// Only records whose key has this digest.
    pub key: Option<Hash16>,
    /// Only records whose scope has this digest.
    pub scope: Option<Hash16>,
    /// Only records with an id between these two, for instance all that begin with the same digits.
    pub ids: Option<RangeInclusive<RecordId>>,
}

impl Filter {
    /// Whether the record is one of those asked for.
    #[must_use]
    pub fn matches(&self, id: &RecordId, snapshot: &Snapshot) -> bool {
        let label = &snapshot.label;
        self.state.is_none_or(|state| state == snapshot.state.kind())
            && self.route.as_ref().is_none_or(|route| *route == label.route)
            && self.key.is_none_or(|key| key == label.key)
            && self.scope.is_none_or(|scope| scope == label.scope)
            && self.ids.as_ref().is_none_or(|ids| ids.contains(id))
    }
}

/// Where a listing goes on: opaque text of the store that gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub String);

/// A record in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: RecordId,
    /// The record, with no more than the beginning of its answer.
    pub snapshot: Snapshot,
}

impl Listed {
    /// How much of an answer is in a listing: enough to say of what kind it is. [`Store::get`] reads it whole.
    pub const ANSWER_BYTES: usize = 64;

    /// The record as a listing shows it.
    #[must_use]
    pub fn new(id: RecordId, mut snapshot: Snapshot) -> Self {
        if let State::Completed(answer) | State::Lapsed { evidence: answer, .. } = &mut snapshot.state
            && answer.0.len() > Self::ANSWER_BYTES
        {
            // A copy: a part of it would keep all of it in memory.
            answer.0 = Bytes::copy_from_slice(&answer.0[..Self::ANSWER_BYTES]);
        }
        Self { id, snapshot }
    }
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The records.
    pub records: Vec<Listed>,
    /// Where to go on, if there may be more.
    pub next: Option<Cursor>,
}
