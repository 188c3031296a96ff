//! Looking through the store. A listing goes shard by shard and holds no lock for longer than one shard; counting and the
//! search for lapsed records look at every record.

use std::collections::{BTreeMap, BinaryHeap};

use async_trait::async_trait;

use super::{BACKEND, MemoryStore};
use crate::error::{ErrorKind, StoreError};
use crate::key::RecordId;
use crate::record::StateKind;
use crate::store::{Cursor, Filter, Inspect, Listed, Page, Unresolved};

#[async_trait]
impl Inspect for MemoryStore {
    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: u32) -> Result<Page, StoreError> {
        let after = after.map(|cursor| cursor.0.parse::<RecordId>()).transpose();
        let after = after.map_err(|cause| {
            StoreError::new(
                ErrorKind::Rejected,
                BACKEND,
                "list",
                format!("not a cursor of this store: {cause}"),
            )
        })?;
        let now = self.clock.now();
        let limit = limit.max(1) as usize;
        let mut records = Vec::new();
        for slot in &self.shards {
            let mut found = slot.shard.lock().matching(filter, after.as_ref(), now);
            found.sort_unstable_by_key(|listed| listed.id);
            records.extend(found);
            if records.len() > limit {
                break;
            }
        }
        let more = records.len() > limit;
        records.truncate(limit);
        let next = records.last().filter(|_| more).map(|last| Cursor(last.id.to_string()));
        Ok(Page { records, next })
    }

    async fn count(&self) -> Result<BTreeMap<StateKind, u64>, StoreError> {
        let now = self.clock.now();
        let mut counts = BTreeMap::new();
        for slot in &self.shards {
            for snapshot in slot.shard.lock().snapshots(now) {
                *counts.entry(snapshot.state.kind()).or_default() += 1;
            }
        }
        Ok(counts)
    }

    async fn lapsed(&self, limit: u32) -> Result<Vec<Listed>, StoreError> {
        let now = self.clock.now();
        let filter = Filter { state: Some(StateKind::Lapsed), ..Filter::default() };
        // Keeps the oldest only: the head of the heap is the youngest of them.
        let mut oldest = BinaryHeap::new();
        for slot in &self.shards {
            for listed in slot.shard.lock().matching(&filter, None, now) {
                oldest.push(ByYouth(listed));
                if oldest.len() > limit as usize {
                    oldest.pop();
                }
            }
        }
        Ok(oldest.into_sorted_vec().into_iter().map(|ByYouth(listed)| listed).collect())
    }

    async fn unresolved(&self, limit: u32) -> Result<Unresolved, StoreError> {
        Ok(self.lapsed(limit).await?.iter().map(|listed| &listed.snapshot).collect())
    }
}

/// Orders records from the oldest to the youngest.
#[derive(PartialEq, Eq)]
struct ByYouth(Listed);

impl Ord for ByYouth {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.0.snapshot.age.cmp(&self.0.snapshot.age).then(self.0.id.cmp(&other.0.id))
    }
}

impl PartialOrd for ByYouth {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
