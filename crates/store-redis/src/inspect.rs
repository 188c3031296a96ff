//! Looking through the store. Redis has no order to page by, so that every page is one pass over all records (by SCAN, which
//! lets others in between): for people and tools, not for the path of a call.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};
use onlyonce_core::{
    Cursor, ErrorKind, Filter, Inspect, Listed, Moment, Page, RecordId, StateKind, Store, StoreError,
};

use crate::fault::BACKEND;
use crate::store::RedisStore;

/// How many records of a page are read at a time.
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
        let mut first = BTreeSet::new();
        let mut more = false;
        let mut scan = self.scan().await.map_err(|fault| fault.during("list"))?;
        while let Some(records) = scan.records().await.map_err(|fault| fault.during("list"))? {
            for (id, record, now) in records {
                if after.is_none_or(|after| id > after) && filter.matches(&record.snapshot(now)) {
                    first.insert(id);
                }
                if first.len() > limit {
                    first.pop_last();
                    more = true;
                }
            }
        }
        let next = first.last().filter(|_| more).map(|last| Cursor(last.to_string()));
        let mut records = self.read_all(first).await?;
        // What has changed since the pass may no longer be what was asked for.
        records.retain(|listed| filter.matches(&listed.snapshot));
        Ok(Page { records, next })
    }

    async fn count(&self) -> Result<BTreeMap<StateKind, u64>, StoreError> {
        let mut counts = BTreeMap::new();
        self.each_once("count", |_, kind, _| *counts.entry(kind).or_default() += 1).await?;
        Ok(counts)
    }

    async fn lapsed(&self, limit: u32) -> Result<Vec<Listed>, StoreError> {
        let mut oldest: BTreeSet<(Moment, RecordId)> = BTreeSet::new();
        self.each_once("lapsed", |id, kind, created| {
            if kind == StateKind::Lapsed {
                oldest.insert((created, id));
            }
            if oldest.len() > limit as usize {
                oldest.pop_last();
            }
        })
        .await?;
        let mut lapsed = self.read_all(oldest.into_iter().map(|(_, id)| id)).await?;
        lapsed.retain(|listed| listed.snapshot.state.kind() == StateKind::Lapsed);
        Ok(lapsed)
    }
}

impl RedisStore {
    /// One pass in which each record is given once. It remembers 8 bytes of each id to know those that SCAN repeats.
    async fn each_once(
        &self,
        call: &'static str,
        mut each: impl FnMut(RecordId, StateKind, Moment) + Send,
    ) -> Result<(), StoreError> {
        let mut known = std::collections::HashSet::new();
        let mut scan = self.scan().await.map_err(|fault| fault.during(call))?;
        while let Some(records) = scan.records().await.map_err(|fault| fault.during(call))? {
            for (id, record, now) in records {
                let mut short = [0; 8];
                short.copy_from_slice(&id.as_bytes()[..8]);
                if known.insert(u64::from_ne_bytes(short)) {
                    each(id, record.snapshot(now).state.kind(), record.created);
                }
            }
        }
        Ok(())
    }

    /// The records with these ids, in this order, without those that are gone by now.
    async fn read_all(
        &self,
        ids: impl IntoIterator<Item = RecordId, IntoIter: Send> + Send,
    ) -> Result<Vec<Listed>, StoreError> {
        let reads = stream::iter(
            ids.into_iter()
                .map(|id| async move { Ok(self.get(&id).await?.map(|snapshot| Listed { id, snapshot })) }),
        );
        reads.buffered(AT_ONCE).try_filter_map(|found| async move { Ok(found) }).try_collect().await
    }
}
