//! One shard: a table of records and the order in which they expire.

use std::sync::atomic::Ordering;

use hashbrown::HashTable;

use super::Usage;
use super::calendar::{self, Calendar};
use crate::clock::Moment;
use crate::key::RecordId;
use crate::machine::{self, Now, Record, Step};
use crate::record::{Begin, Claim, Fence, Snapshot, Verdict};
use crate::store::{Filter, Listed};

#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Boxed, because an open-addressed table is up to half empty; the id is stored once, in the entry.
    table: HashTable<Box<Entry>>,
    calendar: Calendar,
    last_fence: u64,
}

#[derive(Debug)]
struct Entry {
    id: RecordId,
    record: Record,
}

fn answer_bytes(record: &Record) -> usize {
    match &record.settled {
        Some((Verdict::Completed(answer) | Verdict::Unknown(answer), _)) => answer.0.len(),
        _ => 0,
    }
}

impl Shard {
    pub(super) fn contains(&self, id: &RecordId) -> bool {
        self.get(id).is_some()
    }

    pub(super) fn get(&self, id: &RecordId) -> Option<&Record> {
        self.table.find(id.hash(), |entry| entry.id == *id).map(|entry| &entry.record)
    }

    pub(super) fn begin(
        &mut self,
        id: &RecordId,
        claim: &Claim,
        now: Moment,
        wall: Fence,
        usage: &Usage,
    ) -> Begin {
        // The last fence is remembered beyond the record, because a deletion within one microsecond must not lower it.
        let fence_floor = wall.max(Fence(self.last_fence + 1));
        let step = machine::begin(self.get(id), claim, Now { moment: now, fence_floor });
        if let Step::Write(record, _) = &step {
            self.last_fence = self.last_fence.max(record.fence.0);
        }
        self.apply(id, step, usage)
    }

    /// Writes what a step decided and gives its answer.
    pub(super) fn apply<T>(&mut self, id: &RecordId, step: Step<T>, usage: &Usage) -> T {
        let (record, answer) = match step {
            Step::Keep(answer) => return answer,
            Step::Write(record, answer) => (record, answer),
        };
        usage.bytes.fetch_add(answer_bytes(&record), Ordering::Relaxed);
        let expires_at = record.expires_at();
        match self.table.find_mut(id.hash(), |entry| entry.id == *id) {
            Some(entry) => {
                usage.bytes.fetch_sub(answer_bytes(&entry.record), Ordering::Relaxed);
                let expired_at = entry.record.expires_at();
                entry.record = record;
                if expired_at == expires_at {
                    return answer;
                }
                self.calendar.remove(expired_at, id.hash());
            }
            None => {
                usage.records.fetch_add(1, Ordering::Relaxed);
                self.table
                    .insert_unique(id.hash(), Box::new(Entry { id: *id, record }), |entry| entry.id.hash());
            }
        }
        self.calendar.insert(expires_at, id.hash());
        answer
    }

    pub(super) fn remove(&mut self, id: &RecordId, usage: &Usage) {
        self.remove_where(id.hash(), |entry| entry.id == *id, usage);
    }

    /// Removes expired records, the longest expired first; looks at no others but those that expire within this second.
    pub(super) fn sweep(&mut self, now: Moment, limit: usize, usage: &Usage) -> usize {
        let mut removed = self.sweep_past(now, limit, usage);
        for hash in self.calendar.today(now) {
            if removed < limit {
                removed += usize::from(self.remove_where(hash, |entry| entry.record.is_expired(now), usage));
            }
        }
        removed
    }

    /// The cheap part of a sweep: looks at nothing that has not expired.
    pub(super) fn sweep_past(&mut self, now: Moment, limit: usize, usage: &Usage) -> usize {
        let mut removed = 0;
        while removed < limit
            && let Some((page, hash)) = self.calendar.first_before(now)
        {
            let found =
                self.remove_where(hash, |entry| calendar::page(entry.record.expires_at()) == page, usage);
            debug_assert!(found, "the calendar names a record that is not there");
            removed += 1;
        }
        removed
    }

    fn remove_where(&mut self, wanted: u64, is_it: impl Fn(&Entry) -> bool, usage: &Usage) -> bool {
        let Ok(found) = self.table.find_entry(wanted, |entry| entry.id.hash() == wanted && is_it(entry))
        else {
            return false;
        };
        let (entry, _) = found.remove();
        self.calendar.remove(entry.record.expires_at(), wanted);
        usage.records.fetch_sub(1, Ordering::Relaxed);
        usage.bytes.fetch_sub(answer_bytes(&entry.record), Ordering::Relaxed);
        self.give_back_room();
        true
    }

    /// After a flood has expired, its room goes back; a quarter full keeps this rare.
    fn give_back_room(&mut self) {
        if self.table.capacity() > 1024 && self.table.len() < self.table.capacity() / 4 {
            let half = self.table.capacity() / 2;
            self.table.shrink_to(half, |entry| entry.id.hash());
        }
    }

    pub(super) fn snapshots(&self, now: Moment) -> impl Iterator<Item = Snapshot> {
        self.live(now).map(move |entry| entry.record.snapshot(now))
    }

    pub(super) fn matching(&self, filter: &Filter, after: Option<&RecordId>, now: Moment) -> Vec<Listed> {
        self.live(now)
            .filter(|entry| after.is_none_or(|after| entry.id > *after))
            .map(|entry| Listed::new(entry.id, entry.record.snapshot(now)))
            .filter(|listed| filter.matches(&listed.id, &listed.snapshot))
            .collect()
    }

    fn live(&self, now: Moment) -> impl Iterator<Item = &Entry> {
        self.table.iter().map(|entry| &**entry).filter(move |entry| !entry.record.is_expired(now))
    }
}
