//! Decides operations one by one against what is stored and what the batch has already changed.

use std::collections::{BTreeMap, HashMap};

use onlyonce_core::machine::{self, Record, Step};
use onlyonce_core::{
    AttemptId, Begin, Claim, ErrorKind, Fence, RecordId, Settled, Settlement, StoreError, Verdict,
};

use super::Writer;
use super::op::{Answer, Op};
use crate::keys::Key;
use crate::leases::Lease;
use crate::shared::BACKEND;
use crate::stored::Sealed;
use crate::time::Now;

/// What a batch will change.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub(super) touched: HashMap<RecordId, Touched>,
    /// Lists that a sweep went through, by their keys: what is left of them.
    pub(super) lists: BTreeMap<Key, Option<Sealed>>,
    /// Leases to end when the batch is durable.
    pub(super) ended: Vec<(RecordId, Fence)>,
    pub(super) deleted: u64,
    /// Somebody wants a batch even if it changes nothing.
    pub(super) is_wanted: bool,
    pub(super) answers: Vec<Answer>,
}

/// A record that the batch changes.
#[derive(Debug)]
pub(super) struct Touched {
    /// Whether there is one on disk.
    pub(super) existed: bool,
    /// What it will be; `None` is deleted.
    pub(super) record: Option<Record>,
}

impl Touched {
    /// How many records there are after this change of one, if there were `records` before.
    pub(super) fn count(records: u64, touched: &Self) -> u64 {
        match (touched.existed, &touched.record) {
            (false, Some(_)) => records + 1,
            (true, None) => records.saturating_sub(1),
            _ => records,
        }
    }
}

/// A record as an operation finds it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) existed: bool,
    pub(super) record: Option<Record>,
    pub(super) now: Now,
}

impl Decided {
    pub(super) fn has_changes(&self) -> bool {
        !self.touched.is_empty() || !self.lists.is_empty()
    }

    pub(super) fn set(&mut self, id: RecordId, existed: bool, record: Option<Record>) {
        self.touched.insert(id, Touched { existed, record });
    }
}

impl Writer {
    pub(super) fn decide(&mut self, op: Op, decided: &mut Decided) {
        let answer = match op {
            Op::Begin { id, claim, reply } => {
                Answer::Begin(reply, self.begin(id, &claim, decided).map(Into::into))
            }
            Op::Settle { id, attempt, how, reply } => {
                Answer::Settled(reply, "settle", self.settle(id, &attempt, &how, decided))
            }
            Op::Forget { id, seen, reply } => {
                Answer::Settled(reply, "forget", self.forget(id, seen, decided))
            }
            Op::Sweep { limit, reply } => Answer::Swept(reply, self.sweep(limit, decided)),
            Op::Touch { reply } => {
                decided.is_wanted = true;
                Answer::Touched(reply)
            }
            // Done before anything is decided.
            Op::Reopen { .. } | Op::Close => return,
        };
        decided.answers.push(answer);
    }

    pub(super) fn find(
        &self,
        id: &RecordId,
        decided: &Decided,
        call: &'static str,
    ) -> Result<Found, StoreError> {
        let (existed, record) = match decided.touched.get(id) {
            Some(touched) => (touched.existed, touched.record.clone()),
            None => match self.running.get(id) {
                Some(record) => (true, Some(record.clone())),
                None => {
                    let stored = self.shared.open(call)?.load(id, call)?;
                    (stored.is_some(), stored)
                }
            },
        };
        let (lease, now) = self.shared.leases.look(id, &self.shared.time);
        let record = record.map(|record| self.shared.time.with_lease(record, lease, now));
        Ok(Found { existed, record, now })
    }

    fn begin(&mut self, id: RecordId, claim: &Claim, decided: &mut Decided) -> Result<Begin, StoreError> {
        let Found { existed, record, now } = self.find(&id, decided, "begin")?;
        if record.is_none() {
            self.make_room(decided)?;
        }
        let fence_floor = Fence(now.moment.as_micros().max(self.totals.last_fence.saturating_add(1)));
        let step = machine::begin(record.as_ref(), claim, machine::Now { moment: now.moment, fence_floor });
        let (new, begun) = match step {
            Step::Keep(taken) => return Ok(taken),
            Step::Write(new, begun) => (new, begun),
        };
        let is_new = record.is_none_or(|record| record.fence != new.fence);
        if is_new {
            self.shared.check("begin")?;
        }
        let until = now.steady.plus(claim.lease);
        self.shared.leases.put(&id, Lease { owner: new.owner, fence: new.fence, until });
        // The same attempt again: its lease is all that changes, and leases are not written.
        if is_new {
            self.totals.last_fence = self.totals.last_fence.max(new.fence.0);
            decided.set(id, existed, Some(new));
        }
        Ok(begun)
    }

    fn settle(
        &mut self,
        id: RecordId,
        attempt: &AttemptId,
        how: &Settlement,
        decided: &mut Decided,
    ) -> Result<Settled, StoreError> {
        if let Verdict::Completed(answer) | Verdict::Unknown(answer) = &how.verdict {
            self.limits.check_answer(answer.0.len(), "settle")?;
        }
        let Found { existed, record, now } = self.find(&id, decided, "settle")?;
        match machine::settle(record.as_ref(), attempt, how, now.moment) {
            Step::Keep(answer) => Ok(answer),
            Step::Write(new, answer) => {
                self.shared.check("settle")?;
                decided.ended.push((id, new.fence));
                decided.set(id, existed, Some(new));
                Ok(answer)
            }
        }
    }

    fn forget(&mut self, id: RecordId, seen: Fence, decided: &mut Decided) -> Result<Settled, StoreError> {
        let Found { existed, record, now } = self.find(&id, decided, "forget")?;
        let verdict = machine::forget(record.as_ref(), seen, now.moment);
        if verdict == Settled::Applied {
            self.shared.check("forget")?;
            decided.ended.push((id, seen));
            decided.deleted += 1;
            decided.set(id, existed, None);
        }
        Ok(verdict)
    }

    /// Refuses a new record when the store is full and nothing has expired.
    fn make_room(&mut self, decided: &mut Decided) -> Result<(), StoreError> {
        self.shared.check("begin")?;
        self.limits.check_disk(self.shared.directory.path(), self.shared.time.clock.now())?;
        while self.is_full(decided) {
            let swept = self.sweep(64, decided)?;
            if !swept.more && self.is_full(decided) {
                return Err(self.full());
            }
        }
        Ok(())
    }

    fn full(&self) -> StoreError {
        let why = format!(
            "the store is full: it may hold {} records; raise max_records, or shorten `retain`",
            self.limits.max_records
        );
        StoreError::new(ErrorKind::Unavailable, BACKEND, "begin", why)
    }

    fn is_full(&self, decided: &Decided) -> bool {
        let limit = self.limits.max_records;
        // Counting what the batch has done so far is left out as long as it can't matter.
        if self.totals.records.saturating_add(decided.touched.len() as u64) < limit {
            return false;
        }
        decided.touched.values().fold(self.totals.records, Touched::count) >= limit
    }
}
