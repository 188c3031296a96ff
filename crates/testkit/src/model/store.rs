//! The model's side of the seam.

use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::{
    Answer, AttemptId, Begin, Claim, Clock, Fence, RecordId, Revision, Settled, Settlement, Snapshot, Store,
    StoreError, Verdict,
};

use super::row::{Phase, Row};
use super::{Flaw, ModelStore};

#[async_trait]
impl Store for ModelStore {
    async fn begin(&self, id: &RecordId, claim: &Claim) -> Result<Begin, StoreError> {
        let id = self.place(id);
        if !self.has(Flaw::TwoAcquirers) {
            let mut tables = self.tables.lock();
            let found = self.find(&tables, &id);
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
        let (id, now) = (self.place(id), self.now());
        let mut tables = self.tables.lock();
        let Some(row) = tables.rows.get_mut(&id).filter(|row| !self.is_gone(row, now)) else {
            return Ok(self.on_absent());
        };
        let in_time = row.phase(now) == Phase::Running
            || (self.has(Flaw::RenewAfterSettle) && row.word.is_some())
            || (self.has(Flaw::RenewAfterLapse) && row.word.is_none() && row.phase(now) == Phase::Lapsed);
        if !in_time || !row.is_spoken_for_by(attempt, self.flaw) {
            return Ok(Settled::Lost);
        }
        row.lease_end = if self.has(Flaw::RenewalAdds) { row.lease_end + lease } else { now + lease };
        Ok(Settled::Applied)
    }

    async fn settle(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        how: &Settlement,
    ) -> Result<Settled, StoreError> {
        let (id, now) = (self.place(id), self.now());
        let mut tables = self.tables.lock();
        let Some(row) = tables.rows.get_mut(&id).filter(|row| !self.is_gone(row, now)) else {
            return Ok(self.on_absent());
        };
        if !row.is_spoken_for_by(attempt, self.flaw) {
            return Ok(Settled::Lost);
        }
        let verdict = self.as_stored(&how.verdict);
        let told_before = row.word.as_ref().map(|(verdict, _)| verdict.clone());
        match told_before {
            None if row.phase(now) == Phase::Lapsed && self.has(Flaw::LateSettlementRefused) => {
                return Ok(Settled::Lost);
            }
            None => {}
            Some(_) if self.has(Flaw::AnotherSettlementAccepted) => {}
            Some(before) if before != verdict || self.has(Flaw::RepeatedSettleRefused) => {
                return Ok(Settled::Lost);
            }
            Some(_) => {
                if self.has(Flaw::RepeatedSettleExtends) {
                    row.keep_until = now + how.retain;
                }
                return Ok(Settled::Applied);
            }
        }
        if self.has(Flaw::CompletionLost) && matches!(verdict, Verdict::Completed(_)) {
            return Ok(Settled::Applied);
        }
        row.word = Some((verdict, now));
        row.keep_until = how.retain + if self.has(Flaw::ExpiryFromBegin) { row.begun } else { now };
        drop(tables);
        self.tell_waiters();
        Ok(Settled::Applied)
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
        let (id, now) = (self.place(id), self.now());
        let mut tables = self.tables.lock();
        let may = tables.rows.get(&id).is_some_and(|row| {
            !self.is_gone(row, now)
                && (row.fence == seen || self.has(Flaw::ForgetsAnyFence))
                && (row.phase(now) != Phase::Running || self.has(Flaw::ForgetsRunning))
        });
        if !may {
            return Ok(Settled::Lost);
        }
        tables.rows.remove(&id);
        if self.has(Flaw::FenceFallsAfterForget) {
            tables.fences.remove(&id);
        }
        drop(tables);
        self.tell_waiters();
        Ok(Settled::Applied)
    }

    async fn sweep(&self, limit: u32) -> Result<u32, StoreError> {
        let now = self.now();
        let mut tables = self.tables.lock();
        let old = |row: &Row| {
            row.end(self.flaw) <= now
                || (self.has(Flaw::SweepsLapsed) && row.phase(now) == Phase::Lapsed)
                || (self.has(Flaw::SweepsUnderLease) && row.keep_until <= now)
        };
        let most = match self.flaw {
            Some(Flaw::SweepIgnoresLimit) => usize::MAX,
            Some(Flaw::SweepStopsEarly) => limit.min(2) as usize,
            _ => limit as usize,
        };
        let swept: Vec<RecordId> =
            tables.rows.iter().filter(|(_, row)| old(row)).map(|(id, _)| *id).take(most).collect();
        for id in &swept {
            tables.rows.remove(id);
        }
        Ok(u32::try_from(swept.len()).unwrap_or(u32::MAX))
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

impl ModelStore {
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
