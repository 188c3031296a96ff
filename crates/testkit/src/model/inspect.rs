//! Looking through the model.

use std::collections::BTreeMap;

use async_trait::async_trait;
use onlyonce_core::{
    Cursor, ErrorKind, Filter, Inspect, Listed, Page, RecordId, StateKind, StoreError, Unresolved,
};

use super::{Flaw, ModelStore};

#[async_trait]
impl Inspect for ModelStore {
    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: u32) -> Result<Page, StoreError> {
        let filter = match self.flaw {
            Some(Flaw::ListIgnoresState) => Filter { state: None, ..filter.clone() },
            Some(Flaw::ListIgnoresIds) => Filter { ids: None, ..filter.clone() },
            _ => filter.clone(),
        };
        let found =
            self.sorted(self.has(Flaw::ListsExpired), |listed| filter.matches(&listed.id, &listed.snapshot));
        let start = match after {
            None => 0,
            Some(Cursor(text)) if self.has(Flaw::CursorIsOffset) => text.parse().map_err(|_| not_ours())?,
            Some(Cursor(text)) => match text.parse::<RecordId>() {
                Ok(last) if self.has(Flaw::PagesOverlap) => found.partition_point(|listed| listed.id < last),
                Ok(last) => found.partition_point(|listed| listed.id <= last),
                Err(_) if self.has(Flaw::AnyCursorTaken) => 0,
                Err(_) => return Err(not_ours()),
            },
        };
        let records: Vec<_> = found.iter().skip(start).take(limit as usize).cloned().collect();
        let end = start + records.len();
        let next = records.last().filter(|_| end < found.len()).map(|last| match self.flaw {
            Some(Flaw::CursorIsOffset) => Cursor(end.to_string()),
            _ => Cursor(last.id.to_string()),
        });
        Ok(Page { records, next })
    }

    async fn count(&self) -> Result<BTreeMap<StateKind, u64>, StoreError> {
        let mut counts = BTreeMap::new();
        for listed in self.sorted(self.has(Flaw::CountsExpired), |_| true) {
            *counts.entry(listed.snapshot.state.kind()).or_insert(0) += 1;
        }
        Ok(counts)
    }

    async fn lapsed(&self, limit: u32) -> Result<Vec<Listed>, StoreError> {
        let mut lapsed = self.sorted(false, |listed| listed.snapshot.state.kind() == StateKind::Lapsed);
        lapsed.sort_by_key(|listed| std::cmp::Reverse(listed.snapshot.age));
        if self.has(Flaw::LapsedYoungestFirst) {
            lapsed.reverse();
        }
        lapsed.truncate(limit as usize);
        Ok(lapsed)
    }

    async fn unresolved(&self, limit: u32) -> Result<Unresolved, StoreError> {
        let runs = self.has(Flaw::UnresolvedIncludesRunning);
        let counts = |kind| kind == StateKind::Lapsed || (runs && kind == StateKind::Running);
        let found = self.sorted(false, |listed| counts(listed.snapshot.state.kind()));
        Ok(found.iter().take(limit as usize).map(|listed| &listed.snapshot).collect())
    }
}

impl ModelStore {
    fn sorted(&self, with_expired: bool, wanted: impl Fn(&Listed) -> bool) -> Vec<Listed> {
        let now = self.now();
        let tables = self.tables.lock();
        let there = tables.rows.iter().filter(|(_, row)| with_expired || !self.is_gone(row, now));
        let mut listed: Vec<_> = there.map(|(id, row)| Listed::new(*id, row.show(now, self.flaw))).collect();
        listed.retain(wanted);
        listed.sort_by_key(|listed| listed.id);
        listed
    }
}

fn not_ours() -> StoreError {
    StoreError::new(ErrorKind::Rejected, "model", "list", "not a cursor of this store")
}
