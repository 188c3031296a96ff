//! Deletes expired records: goes by the lists, so that the cost is that of what has expired.

use bytes::Bytes;
use onlyonce_core::StoreError;

use super::Writer;
use super::decide::{Decided, Found};
use super::op::Swept;
use super::plan::due_list;
use crate::engine::Visit;
use crate::keys::{self, Key};
use crate::shared::Shared;
use crate::stored::{Due, decode_due};

/// So many open records are looked at at a time.
const AT_ONCE: usize = 1024;

/// A list of completed records of which some are due.
struct DueList {
    key: Key,
    items: Vec<Due>,
}

/// What became of an entry of such a list.
enum Entry {
    /// Its record has expired, and is deleted.
    Deleted,
    /// It is of no more use: its record was forgotten, or begun anew and is in another list.
    Stale,
    /// Its record is kept until then.
    Later(u64),
    /// Nobody can tell, because its record can't be read.
    Unreadable,
}

impl Writer {
    /// Deletes at most `limit` expired records, as part of the batch. Entries that are of no more use cost time as well, so
    /// that a part may end early: only it says whether there is more.
    pub(super) fn sweep(&mut self, limit: usize, decided: &mut Decided) -> Result<Swept, StoreError> {
        self.shared.check("sweep")?;
        let open = self.sweep_open(limit, decided);
        let completed = self.sweep_completed(limit - open.deleted, decided)?;
        Ok(Swept { deleted: open.deleted + completed.deleted, more: open.more || completed.more })
    }

    fn sweep_open(&mut self, limit: usize, decided: &mut Decided) -> Swept {
        let now = self.shared.time.now().moment.as_micros();
        let (mut deleted, mut last) = (0, None);
        loop {
            let due: Vec<_> = {
                let index = self.shared.index.lock();
                let due = index.due(last, now).filter(|(_, id)| !decided.touched.contains_key(id));
                due.take(AT_ONCE).collect()
            };
            if due.is_empty() {
                return Swept { deleted, more: false };
            }
            last = due.last().copied();
            for (_, id) in due {
                if deleted == limit {
                    return Swept { deleted, more: true };
                }
                // A damaged record stays: nobody can tell any more whether it has expired.
                let Ok(Found { existed, record: Some(record), now }) = self.find(&id, decided, "sweep")
                else {
                    continue;
                };
                if record.is_expired(now.moment) {
                    decided.ended.push((id, record.fence));
                    decided.deleted += 1;
                    decided.set(id, existed, None);
                    deleted += 1;
                } else {
                    // A lease was renewed beyond the retention, or the clock was set.
                    self.shared.index.lock().postpone(&id, record.expires_at().as_micros());
                }
            }
        }
    }

    fn sweep_completed(&mut self, limit: usize, decided: &mut Decided) -> Result<Swept, StoreError> {
        if limit == 0 {
            return Ok(Swept { deleted: 0, more: true });
        }
        let now = self.shared.time.now().moment.as_micros();
        let (lists, next) = self.due_lists(now, limit, decided)?;
        let mut deleted = 0;
        for list in lists {
            let (mut unreadable, mut later, mut rest) = (Vec::new(), Vec::new(), Vec::new());
            for due in &list.items {
                if deleted == limit || due.expires > now {
                    rest.push(*due);
                    continue;
                }
                match self.sweep_one(due, decided) {
                    Entry::Deleted => deleted += 1,
                    Entry::Stale => {}
                    Entry::Later(expires) => later.push(Due { expires, ..*due }),
                    Entry::Unreadable => unreadable.push(*due),
                }
            }
            let mut rest_key = None;
            let is_due = rest.first().is_some_and(|due| due.expires <= now);
            if rest.len() < list.items.len() && unreadable.len() < list.items.len() {
                later.sort_unstable_by_key(|due| due.expires);
                decided.lists.insert(list.key, None);
                keep(&unreadable, decided);
                keep(&later, decided);
                rest_key = keep(&rest, decided);
            }
            if is_due {
                // The rest may have got behind others that expire at the same time.
                self.swept_to = rest_key.map_or(list.key, |rest| rest.min(list.key));
                return Ok(Swept { deleted, more: true });
            }
        }
        self.swept_to = next.unwrap_or(keys::expiry_list(now, u64::MAX));
        Ok(Swept { deleted, more: next.is_some() })
    }

    /// Deletes the record of a due entry if it has expired.
    fn sweep_one(&self, due: &Due, decided: &mut Decided) -> Entry {
        let Ok(Found { existed, record, now }) = self.find(&due.id, decided, "sweep") else {
            return Entry::Unreadable;
        };
        match record.filter(|record| record.settled.is_some()) {
            Some(record) if record.is_expired(now.moment) => {
                decided.deleted += 1;
                decided.set(due.id, existed, None);
                Entry::Deleted
            }
            // The clock was set after it was completed.
            Some(record) if self.shared.time.is_kept_longer(&record) => {
                Entry::Later(record.expires.as_micros())
            }
            _ => Entry::Stale,
        }
    }

    /// Lists with at least `limit` entries that are due, in the order of their keys, and where to go on if there are more.
    fn due_lists(
        &self,
        now: u64,
        limit: usize,
        decided: &Decided,
    ) -> Result<(Vec<DueList>, Option<Key>), StoreError> {
        // Starts where the last sweep ended: what lies before was deleted, but the engine would go through it all again.
        let last = keys::expiry_list(now, u64::MAX);
        let range = self.swept_to.min(last)..=last;
        // What an earlier sweep of this batch has left.
        let rests = decided.lists.range(range.clone());
        let rests = rests.filter_map(|(key, value)| DueList::read(key, value.as_ref()?.to_bytes()));
        let mut lists: Vec<_> = rests.collect();
        let mut next = None;
        let mut found: usize = lists.iter().map(|list| list.items.len()).sum();
        let scanned = self.shared.open("sweep")?.engine.scan(range, |key, value| {
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
            next = keys::expiry_list_parts(key).map(|(first, batch)| keys::after_expiry_list(first, batch));
            Visit::Enough
        });
        scanned.map_err(|cause| Shared::engine_error("sweep", cause))?;
        lists.sort_unstable_by_key(|list| list.key);
        Ok((lists, next))
    }
}

/// Keeps a part of a list, and says under which key: one that no other list has, whatever batches they are of.
fn keep(part: &[Due], decided: &mut Decided) -> Option<Key> {
    part.first()?;
    let list = due_list(part, rand::random::<u64>() | 1 << 63);
    decided.lists.insert(list.key, list.value);
    Some(list.key)
}

impl DueList {
    fn read(key: &[u8], value: Bytes) -> Option<Self> {
        keys::expiry_list_parts(key)?;
        let items = decode_due(key, value).ok()?;
        Some(Self { key: Key::read(key)?, items })
    }
}
