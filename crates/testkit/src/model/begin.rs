//! Who gets a record.

use onlyonce_core::{Begin, Claim, Clock, Fence, Over, RecordId};

use super::row::{Phase, Row};
use super::{Flaw, ModelStore, Tables};

impl ModelStore {
    pub(super) fn find(&self, tables: &Tables, id: &RecordId) -> Option<Row> {
        let now = self.now();
        tables.rows.get(id).filter(|row| !self.is_gone(row, now)).cloned()
    }

    pub(super) fn begin_on(
        &self,
        tables: &mut Tables,
        id: RecordId,
        found: Option<Row>,
        claim: &Claim,
    ) -> Begin {
        let now = self.now();
        let Some(row) = found else {
            return self.write_new(tables, id, None, claim);
        };
        let runs = row.phase(now) == Phase::Running;
        if runs && row.owner == claim.owner && !self.has(Flaw::RepeatedBeginRefused) {
            let over = if self.has(Flaw::RepeatedBeginForgetsOver) { Over::Nothing } else { row.over };
            let again = Begin::Acquired { fence: Fence(row.fence), attempt: row.attempts, over };
            if !self.has(Flaw::RepeatedBeginDoesNotRenew) {
                tables.rows.insert(id, Row { lease_end: now + claim.lease, ..row });
            }
            return again;
        }
        if row.yields_to(claim, now, self.flaw) {
            return self.write_new(tables, id, Some(row), claim);
        }
        let shown = row.show(now, self.flaw);
        if self.has(Flaw::RefusedBeginWrites) {
            let (label, lease_end) = (claim.label.clone(), row.lease_end.max(now + claim.lease));
            tables.rows.insert(id, Row { label, lease_end, ..row });
        }
        Begin::Taken(shown)
    }

    fn write_new(&self, tables: &mut Tables, id: RecordId, before: Option<Row>, claim: &Claim) -> Begin {
        let now = self.now();
        let last = tables.fences.get(&id).copied().unwrap_or(0);
        let fence = self.clock.wall_micros().max(last + 1);
        tables.fences.insert(id, fence);
        let over = match &before {
            None if self.has(Flaw::FirstOverReleased) => Over::Released,
            None => Over::Nothing,
            Some(row) if row.phase(now) == Phase::Released => Over::Released,
            Some(_) => Over::Lapsed,
        };
        let before = before.as_ref();
        let attempts = match before {
            Some(row) if !self.has(Flaw::AttemptsNotCounted) => row.attempts + 1,
            _ => 1,
        };
        let row = Row {
            payload: claim.fingerprint,
            label: before
                .filter(|_| self.has(Flaw::LabelOfFirstAttempt))
                .map_or_else(|| claim.label.clone(), |row| row.label.clone()),
            owner: claim.owner,
            fence,
            attempts,
            over,
            born: before.filter(|_| !self.has(Flaw::AgeResetByTakeover)).map_or(now, |row| row.born),
            begun: now,
            lease_end: now + claim.lease,
            word: None,
            keep_until: before
                .filter(|_| self.has(Flaw::TakeoverKeepsExpiry))
                .map_or(now + claim.retain_unsettled, |row| row.keep_until),
        };
        tables.rows.insert(id, row);
        self.tell_waiters();
        Begin::Acquired { fence: Fence(fence), attempt: attempts, over }
    }
}
