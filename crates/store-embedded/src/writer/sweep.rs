//! Deletes expired records: goes by the lists, so that the cost is that of what has expired.

use bytes::Bytes;
use onlyonce_core::StoreError;
use onlyonce_core::machine::Record;

use super::Writer;
use super::decide::{Decided, Found};
use super::plan::due_list;
use crate::engine::Visit;
use crate::keys::{self, Key};
use crate::shared::Shared;
use crate::stored::{Due, decode_due};

/// So many damaged records may lie before those that can be swept.
const DAMAGED: usize = 1024;

/// A list of completed records of which some are due.
struct DueList {
    key: Key,
    batch: u64,
    items: Vec<Due>,
}

impl Writer {
    /// Deletes at most `limit` expired records, as part of the batch; fewer means that none is left.
    pub(super) fn sweep(&mut self, limit: usize, decided: &mut Decided) -> Result<u32, StoreError> {
        let open = self.sweep_open(limit, decided)?;
        let completed = self.sweep_completed(limit - open, decided)?;
        Ok(u32::try_from(open + completed).unwrap_or(u32::MAX))
    }

    fn sweep_open(&mut self, limit: usize, decided: &mut Decided) -> Result<usize, StoreError> {
        let now = self.shared.time.now().wall.as_micros();
        let due: Vec<_> = {
            let index = self.shared.index.lock();
            index.due(now).filter(|id| !decided.touched.contains_key(id)).take(limit + DAMAGED).collect()
        };
        let mut swept = 0;
        for id in due {
            if swept == limit {
                break;
            }
            // A damaged record stays: nobody can tell any more whether it has expired.
            let Ok(Found { existed, record: Some(record), now }) = self.find(&id, decided, "sweep") else {
                continue;
            };
            if record.is_expired(now.wall) {
                decided.ended.push((id, record.fence));
                decided.deleted += 1;
                decided.set(id, existed, None);
                swept += 1;
            } else {
                // A lease that was renewed beyond the retention: written once more, with its new expiry.
                decided.set(id, existed, Some(record));
            }
        }
        Ok(swept)
    }

    fn sweep_completed(&mut self, limit: usize, decided: &mut Decided) -> Result<usize, StoreError> {
        let now = self.shared.time.now().wall.as_micros();
        let mut swept = 0;
        let (lists, mut swept_to) = self.due_lists(now, limit, decided)?;
        for list in lists {
            let mut kept = Vec::new();
            for due in &list.items {
                if swept == limit {
                    swept_to = swept_to.min(due.expires);
                    kept.push(*due);
                } else if !self.sweep_one(due, now, decided, &mut swept) {
                    kept.push(*due);
                }
            }
            if kept.len() < list.items.len() {
                decided.lists.insert(list.key, None);
                if !kept.is_empty() {
                    let rest = due_list(&kept, list.batch);
                    decided.lists.insert(rest.key, rest.value);
                }
            }
        }
        self.swept_to = swept_to;
        Ok(swept)
    }

    /// Deletes the record if it has expired; says whether its entry is of no more use.
    fn sweep_one(&mut self, due: &Due, now: u64, decided: &mut Decided, swept: &mut usize) -> bool {
        if due.expires > now {
            return false;
        }
        let Ok(Found { existed, record, .. }) = self.find(&due.id, decided, "sweep") else { return false };
        // Else it was forgotten, or begun anew after it had expired, and is in another list.
        let is_meant =
            |record: &Record| record.expires.as_micros() == due.expires && record.settled.is_some();
        if record.is_some_and(|record| is_meant(&record)) {
            decided.deleted += 1;
            decided.set(due.id, existed, None);
            *swept += 1;
        }
        true
    }

    /// Lists with at least `limit` records that are due, if there are so many, and up to which time these are all.
    fn due_lists(
        &self,
        now: u64,
        limit: usize,
        decided: &Decided,
    ) -> Result<(Vec<DueList>, u64), StoreError> {
        // What an earlier sweep of this batch has left.
        let rests =
            decided.lists.iter().filter_map(|(key, value)| DueList::read(key, value.as_ref()?.to_bytes()));
        let mut lists: Vec<_> =
            rests.filter(|list| list.items.iter().any(|due| due.expires <= now)).collect();
        let mut complete_to = now;
        let mut found: usize = lists.iter().map(|list| list.items.len()).sum();
        // Starts where the last sweep ended: what lies before was deleted, but the engine would go through it all again.
        let range = keys::expiry_list(self.swept_to.min(now), 0)..=keys::expiry_list(now, u64::MAX);
        let scanned = self.shared.engine.scan(range, |key, value| {
            if Key::read(key).is_none_or(|key| !decided.lists.contains_key(&key)) {
                match DueList::read(key, value) {
                    Some(list) => {
                        found += list.items.len();
                        lists.push(list);
                    }
                    None => {
                        tracing::warn!("a list of completed records is damaged; its records stay on disk")
                    }
                }
            }
            if found < limit {
                return Visit::More;
            }
            complete_to = keys::expiry_list_parts(key).map_or(0, |(first, _)| first);
            Visit::Enough
        });
        scanned.map_err(|cause| Shared::engine_error("sweep", cause))?;
        Ok((lists, complete_to))
    }
}

impl DueList {
    fn read(key: &[u8], value: Bytes) -> Option<Self> {
        let (_, batch) = keys::expiry_list_parts(key)?;
        let items = decode_due(key, value).ok()?;
        Some(Self { key: Key::read(key)?, batch, items })
    }
}
