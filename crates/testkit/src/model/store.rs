//! The model's side of the seam.

use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::{
    Answer, AttemptId, Begin, Claim, Clock, Fence, RecordId, Revision, Settled, Settlement, Snapshot, Store,
    StoreError, Verdict,
};

use super::row::{Phase, Row};
use super::{Flaw, ModelStore, Tables};

#[async_trait]
impl Store for ModelStore {
    async fn begin(&self, id: &RecordId, claim: &Claim) -> Result<Begin, StoreError> {
        let id = self.place(id);
        if !self.has(Flaw::TwoAcquirers) {
            let mut tables = self.tables.lock();
            let found = self.find(&tables, &id);
            if found.is_none() && self.is_full() && !self.has(Flaw::FullTakesNew) {
                return Err(full("begin"));
            }
            return Ok(self.begin_on(&mut tables, id, found, claim));
        }
        let found = self.find(&self.tables.lock(), &id);
        tokio::task::yield_now().await;
        Ok(self.begin_on(&mut self.tables.lock(), id, found, claim))
    }

    async fn renew(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        lease: Duration,
    ) -> Result<Settled, StoreError> {
        let now = self.now();
        let renewed = self.change(id, Flaw::RenewInTwoSteps, |found| {
            let Some(row) = found else { return (self.on_absent(), Change::Nothing) };
            let in_time = row.phase(now) == Phase::Running
                || (self.has(Flaw::RenewAfterSettle) && row.word.is_some())
                || (self.has(Flaw::RenewAfterLapse) && row.word.is_none() && row.phase(now) == Phase::Lapsed);
            if !in_time || !row.is_spoken_for_by(attempt, self.flaw) {
                return (Settled::Lost, Change::Nothing);
            }
            let from = if self.has(Flaw::RenewalAdds) { row.lease_end } else { now };
            (Settled::Applied, Change::Write(Row { lease_end: from + lease, ..row }))
        });
        Ok(renewed.await)
    }

    async fn settle(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        how: &Settlement,
    ) -> Result<Settled, StoreError> {
        if self.has(Flaw::FullRefusesSettlements) && self.is_full() {
            return Err(full("settle"));
        }
        if self.has(Flaw::AnswerWrittenLater)
            && let Some(first) = how.without_answer()
        {
            let settled =
                self.change(id, Flaw::SettleInTwoSteps, |found| self.settle_on(found, attempt, &first)).await;
            tokio::task::yield_now().await;
            if settled == Settled::Applied {
                return Ok(self
                    .change(id, Flaw::SettleInTwoSteps, |found| self.amend(found, attempt, how))
                    .await);
            }
        }
        Ok(self.change(id, Flaw::SettleInTwoSteps, |found| self.settle_on(found, attempt, how)).await)
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        let (id, now) = (self.place(id), self.now());
        let mut tables = self.tables.lock();
        let found = tables.rows.get_mut(&id).filter(|row| !self.is_gone(row, now));
        Ok(found.map(|row| {
            if self.has(Flaw::ExpiryResetByRead) {
                row.keep_until += row.keep_until.saturating_sub(now);
            }
            row.show(now, self.flaw)
        }))
    }

    async fn forget(&self, id: &RecordId, Fence(seen): Fence) -> Result<Settled, StoreError> {
        let now = self.now();
        let forgotten = self.change(id, Flaw::ForgetInTwoSteps, |found| {
            let may = found.is_some_and(|row| {
                (row.fence == seen || self.has(Flaw::ForgetsAnyFence))
                    && (row.phase(now) != Phase::Running || self.has(Flaw::ForgetsRunning))
            });
            if may { (Settled::Applied, Change::Delete) } else { (Settled::Lost, Change::Nothing) }
        });
        Ok(forgotten.await)
    }

    async fn sweep(&self, limit: u32) -> Result<u32, StoreError> {
        let most = match self.flaw {
            Some(Flaw::SweepIgnoresLimit) => usize::MAX,
            Some(Flaw::SweepStopsEarly) => limit.min(2) as usize,
            _ => limit as usize,
        };
        if self.has(Flaw::SweepInTwoSteps) {
            let found = self.old(&self.tables.lock(), most);
            tokio::task::yield_now().await;
            return Ok(delete(&mut self.tables.lock(), &found));
        }
        let mut tables = self.tables.lock();
        let found = self.old(&tables, most);
        Ok(delete(&mut tables, &found))
    }

    fn ready(&self) -> Result<(), StoreError> {
        match self.has(Flaw::NeverReady) {
            true => Err(StoreError::unavailable("model", "ready", "it takes no calls")),
            false => Ok(()),
        }
    }

    async fn changed(&self, id: &RecordId, seen: Revision, timeout: Duration) {
        let id = self.place(id);
        let mut changes = self.changes.subscribe();
        let is_as_seen =
            || {
                self.tables.lock().rows.get(&id).is_some_and(|row| {
                    Revision { fence: Fence(row.fence), settled: row.word.is_some() } == seen
                })
            };
        let change = async {
            if self.has(Flaw::WaitsWithoutLooking) {
                let _ = changes.changed().await;
            }
            while is_as_seen() {
                let _ = changes.changed().await;
            }
        };
        let end = async {
            if self.has(Flaw::WaitsForever) {
                std::future::pending::<()>().await;
            }
            self.clock.sleep(timeout).await;
        };
        tokio::select! {
            () = change => {}
            () = end => {}
        }
    }
}

/// What a step makes of a row.
#[allow(clippy::large_enum_variant, reason = "a model is plain, not fast")]
enum Change {
    Nothing,
    Write(Row),
    Delete,
}

fn full(call: &'static str) -> StoreError {
    StoreError::unavailable("model", call, "the store is full")
}

fn delete(tables: &mut Tables, rows: &[RecordId]) -> u32 {
    rows.iter().map(|id| u32::from(tables.rows.remove(id).is_some())).sum()
}

impl ModelStore {
    /// Changes a row in one step; with the flaw `torn` in two, between which others come and are overwritten.
    async fn change(
        &self,
        id: &RecordId,
        torn: Flaw,
        decide: impl FnOnce(Option<Row>) -> (Settled, Change) + Send,
    ) -> Settled {
        let id = self.place(id);
        if self.has(torn) {
            let found = self.find(&self.tables.lock(), &id);
            tokio::task::yield_now().await;
            return self.write(&mut self.tables.lock(), id, decide(found));
        }
        let mut tables = self.tables.lock();
        let found = self.find(&tables, &id);
        self.write(&mut tables, id, decide(found))
    }

    fn write(&self, tables: &mut Tables, id: RecordId, (settled, change): (Settled, Change)) -> Settled {
        match change {
            Change::Nothing => return settled,
            Change::Write(row) => _ = tables.rows.insert(id, row),
            Change::Delete => {
                tables.rows.remove(&id);
                if self.has(Flaw::FenceFallsAfterForget) {
                    tables.fences.remove(&id);
                }
            }
        }
        self.tell_waiters();
        settled
    }

    fn settle_on(&self, found: Option<Row>, attempt: &AttemptId, how: &Settlement) -> (Settled, Change) {
        let now = self.now();
        let Some(row) = found else { return (self.on_absent(), Change::Nothing) };
        if !row.is_spoken_for_by(attempt, self.flaw) {
            return (Settled::Lost, Change::Nothing);
        }
        let verdict = self.as_stored(&how.verdict);
        match row.word.as_ref().map(|(before, _)| *before == verdict) {
            None if row.phase(now) == Phase::Lapsed && self.has(Flaw::LateSettlementRefused) => {
                return (Settled::Lost, Change::Nothing);
            }
            None => {}
            Some(_) if self.has(Flaw::AnotherSettlementAccepted) => {}
            Some(same) if !same || self.has(Flaw::RepeatedSettleRefused) => {
                return (Settled::Lost, Change::Nothing);
            }
            Some(_) if self.has(Flaw::RepeatedSettleExtends) => {
                return (Settled::Applied, Change::Write(Row { keep_until: now + how.retain, ..row }));
            }
            Some(_) => return (Settled::Applied, Change::Nothing),
        }
        if self.has(Flaw::CompletionLost) && matches!(verdict, Verdict::Completed(_)) {
            return (Settled::Applied, Change::Nothing);
        }
        let from = if self.has(Flaw::ExpiryFromBegin) { row.begun } else { now };
        let settled = Row { word: Some((verdict, now)), keep_until: from + how.retain, ..row };
        (Settled::Applied, Change::Write(settled))
    }

    /// The answer to a verdict that was written before.
    fn amend(&self, found: Option<Row>, attempt: &AttemptId, how: &Settlement) -> (Settled, Change) {
        let row = found.filter(|row| row.is_spoken_for_by(attempt, self.flaw));
        let word = Some((how.verdict.clone(), self.now()));
        match row {
            Some(row) => (Settled::Applied, Change::Write(Row { word, ..row })),
            None => (Settled::Lost, Change::Nothing),
        }
    }

    /// What a sweep may delete.
    fn old(&self, tables: &Tables, most: usize) -> Vec<RecordId> {
        let now = self.now();
        let old = |row: &Row| {
            row.end(self.flaw) <= now
                || (self.has(Flaw::SweepsLapsed) && row.phase(now) == Phase::Lapsed)
                || (self.has(Flaw::SweepsUnderLease) && row.keep_until <= now)
        };
        tables.rows.iter().filter(|(_, row)| old(row)).map(|(id, _)| *id).take(most).collect()
    }

    fn on_absent(&self) -> Settled {
        if self.has(Flaw::AbsentIsApplied) { Settled::Applied } else { Settled::Lost }
    }

    fn as_stored(&self, verdict: &Verdict) -> Verdict {
        match verdict {
            Verdict::Completed(answer) if self.has(Flaw::AnswersAsText) => {
                Verdict::Completed(Answer(String::from_utf8_lossy(&answer.0).into_owned().into()))
            }
            Verdict::Unknown(_) if self.has(Flaw::EvidenceDropped) => Verdict::Unknown(Answer::none()),
            other => other.clone(),
        }
    }
}
