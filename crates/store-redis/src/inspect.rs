//! Looking through the store. What needs a person is in the index. For the rest Redis has no order to page by, so that every
//! page is one pass over all records (by SCAN, which lets others in between): for people and tools, not for the path of a call.

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use onlyonce_core::{
    Cursor, ErrorKind, Filter, Inspect, Listed, Page, RecordId, StateKind, StoreError, Unresolved,
};

use crate::fault::BACKEND;
use crate::index::Entry;
use crate::store::RedisStore;

/// How many records of the index are read at a time.
const AT_ONCE: usize = 32;

#[async_trait]
impl Inspect for RedisStore {
    /// In the order of ids, which stays the same while records come and go.
    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: u32) -> Result<Page, StoreError> {
        let after = after.map(|cursor| cursor.0.parse::<RecordId>()).transpose().map_err(|cause| {
            let why = format!("not a cursor of this store: {cause}");
            StoreError::new(ErrorKind::Rejected, BACKEND, "list", why)
        })?;
        let limit = limit.max(1) as usize;
        let mut first = BTreeMap::new();
        let mut more = false;
        let mut scan = self.scan().await.map_err(|fault| fault.during("list"))?;
        while let Some(records) = scan.records().await.map_err(|fault| fault.during("list"))? {
            for (id, record, now) in records {
                let snapshot = record.snapshot(now);
                if after.is_none_or(|after| id > after) && filter.matches(&id, &snapshot) {
                    first.insert(id, Listed::new(id, snapshot));
                }
                if first.len() > limit {
                    first.pop_last();
                    more = true;
                }
            }
        }
        let next = first.keys().next_back().filter(|_| more).map(|last| Cursor(last.to_string()));
        Ok(Page { records: first.into_values().collect(), next })
    }

    async fn count(&self) -> Result<BTreeMap<StateKind, u64>, StoreError> {
        let mut counts = BTreeMap::new();
        // 8 bytes of each id tell those that SCAN repeats.
        let mut known = std::collections::HashSet::new();
        let mut scan = self.scan().await.map_err(|fault| fault.during("count"))?;
        while let Some(records) = scan.records().await.map_err(|fault| fault.during("count"))? {
            for (id, record, now) in records {
                let mut short = [0; 8];
                short.copy_from_slice(&id.as_bytes()[..8]);
                if known.insert(u64::from_ne_bytes(short)) {
                    *counts.entry(record.snapshot(now).state.kind()).or_default() += 1;
                }
            }
        }
        Ok(counts)
    }

    /// By the index, so that it costs what is unsettled and not what is there.
    async fn lapsed(&self, limit: u32) -> Result<Vec<Listed>, StoreError> {
        let limit = limit as usize;
        let unsettled = self.unsettled().await.map_err(|fault| fault.during("lapsed"))?;
        let mut lapsed = Vec::new();
        for entries in unsettled.chunks(AT_ONCE) {
            if lapsed.len() >= limit {
                break;
            }
            lapsed.extend(self.lapsed_of(entries).await?);
        }
        lapsed.truncate(limit);
        Ok(lapsed)
    }

    /// The same way; what was read is let go again.
    async fn unresolved(&self, limit: u32) -> Result<Unresolved, StoreError> {
        let unsettled = self.unsettled().await.map_err(|fault| fault.during("unresolved"))?;
        let mut all = Unresolved::default();
        for entries in unsettled.chunks(AT_ONCE) {
            let left = u64::from(limit).saturating_sub(all.count) as usize;
            if left == 0 {
                break;
            }
            let lapsed = self.lapsed_of(entries).await?;
            let some: Unresolved = lapsed.iter().take(left).map(|listed| &listed.snapshot).collect();
            all.count += some.count;
            all.silent += some.silent;
            all.oldest = all.oldest.max(some.oldest);
        }
        Ok(all)
    }
}

impl RedisStore {
    /// Which of these have lapsed, in this order. What is not there any more is taken out of the index.
    async fn lapsed_of(&self, entries: &[Entry]) -> Result<Vec<Listed>, StoreError> {
        let beginning = Listed::ANSWER_BYTES.to_string();
        let beginning = [beginning.as_bytes()];
        let reads = stream::iter(entries.iter().copied().map(|(_, id)| {
            let beginning = &beginning;
            async move { (id, self.read(&id, "lapsed", beginning).await) }
        }));
        let mut reads = reads.buffered(AT_ONCE);
        let mut lapsed = Vec::new();
        while let Some((id, found)) = reads.next().await {
            match found {
                Ok(Some(snapshot)) if snapshot.state.kind() == StateKind::Lapsed => {
                    lapsed.push(Listed::new(id, snapshot))
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.tidy(id).await.map_err(|fault| fault.during("lapsed"))?;
                }
                // One damaged value must not hide all others.
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    tracing::warn!(%id, "what is stored under the name of this record is none");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(lapsed)
    }
}
