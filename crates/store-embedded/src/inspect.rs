//! Looking through the store.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::machine::Record;
use onlyonce_core::{
    Cursor, ErrorKind, Filter, Inspect, Listed, Moment, Page, RecordId, StateKind, StoreError, Unresolved,
    Verdict,
};

use crate::engine::Visit;
use crate::keys;
use crate::shared::{BACKEND, Open, Shared};
use crate::store::EmbeddedStore;
use crate::stored::{OpenItem, OpenKind, decode_due, decode_record};
use crate::time::Now;

/// A page goes through no more records than this; a filter that matches few then gives short pages, with a cursor.
const LOOK_AT_MOST: usize = 50_000;
/// Nor does it read more than this and one more.
const PAGE_BYTES: usize = 8 << 20;

#[async_trait]
impl Inspect for EmbeddedStore {
    /// In the order of ids. Costs as many reads as records are gone through until the page is full: all of them in the
    /// worst case, but only those that are open if the filter asks for a state other than completed. A page may be short
    /// although there are more; then it has a cursor. A damaged record is left out, and logged.
    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: u32) -> Result<Page, StoreError> {
        let after = after.map(|cursor| cursor.0.parse::<RecordId>()).transpose().map_err(|cause| {
            let why = format!("not a cursor of this store: {cause}");
            StoreError::new(ErrorKind::Rejected, BACKEND, "list", why)
        })?;
        let filter = filter.clone();
        let limit = limit.max(1) as usize;
        self.read("list", move |shared| match filter.state {
            None | Some(StateKind::Completed) => list_all(shared, &filter, after, limit),
            Some(_) => list_open(shared, &filter, after, limit),
        })
        .await
    }

    /// Costs as much as is open, and as has expired and was not swept yet; completed records are counted as they come.
    async fn count(&self) -> Result<BTreeMap<StateKind, u64>, StoreError> {
        self.read("count", count).await
    }

    /// Costs as much as is open.
    async fn lapsed(&self, limit: u32) -> Result<Vec<Listed>, StoreError> {
        self.read("lapsed", move |shared| {
            let oldest: Vec<_> = shared.index.lock().oldest().copied().collect();
            let lapsed = oldest.into_iter().filter(|item| may_have_lapsed(shared, item));
            let listed = lapsed.filter_map(|item| listed(shared, item.id));
            let lapsed = listed.filter(|listed| listed.snapshot.state.kind() == StateKind::Lapsed);
            Ok(lapsed.take(limit as usize).collect())
        })
        .await
    }

    /// Costs as much as is open, in memory, and keeps nobody waiting for long.
    async fn unresolved(&self, limit: u32) -> Result<Unresolved, StoreError> {
        self.read("unresolved", move |shared| Ok(unresolved(shared, limit.into()))).await
    }
}

/// How many open records are looked at under one lock.
const AT_A_TIME: usize = 1_000;

fn unresolved(shared: &Open<'_>, limit: u64) -> Unresolved {
    let now = shared.time.now().moment.as_micros();
    let (mut all, mut last) = (Unresolved::default(), None);
    loop {
        let some: Vec<_> = shared.index.lock().after(last.as_ref()).take(AT_A_TIME).copied().collect();
        for item in some.iter().filter(|item| may_have_lapsed(shared, item)) {
            all.oldest = all.oldest.max(Some(Duration::from_micros(now.saturating_sub(item.created))));
            if all.count < limit {
                all.count += 1;
                all.silent += u64::from(item.kind == OpenKind::Unsettled);
            }
        }
        last = some.last().map(|item| item.id);
        if some.len() < AT_A_TIME {
            return all;
        }
    }
}

fn list_all(
    shared: &Open<'_>,
    filter: &Filter,
    after: Option<RecordId>,
    limit: usize,
) -> Result<Page, StoreError> {
    let from =
        after.map_or(Bound::Included(vec![keys::RECORD]), |id| Bound::Excluded(keys::record(&id).to_vec()));
    let (from, to) = match &filter.ids {
        Some(ids) if after.is_none_or(|after| after < *ids.start()) => {
            (Bound::Included(keys::record(ids.start()).to_vec()), Some(ids.end()))
        }
        Some(ids) => (from, Some(ids.end())),
        None => (from, None),
    };
    let mut page = Pager::new(limit);
    let to =
        to.map_or(Bound::Excluded(vec![keys::RECORD + 1]), |id| Bound::Included(keys::record(id).to_vec()));
    let range = (from, to);
    let scanned = shared.engine.scan(range, |key, value| {
        let Some(id) = keys::record_id(key) else { return Visit::More };
        let bytes = value.len();
        let is_open = decode_record(&id, value).map(|record| match &record.settled {
            // Whether it runs is in memory; it must be looked at in the right order.
            None => listed(shared, id),
            Some(_) => Some((shared.time.kept(record), shared.time.now()))
                .filter(is_live)
                .map(|found| show(id, found)),
        });
        match is_open {
            Ok(listed) => {
                page.add(id, bytes, listed.filter(|listed| filter.matches(&listed.id, &listed.snapshot)))
            }
            Err(cause) => {
                tracing::warn!(%id, %cause, "a damaged record was left out of a listing");
                page.add(id, bytes, None)
            }
        }
    });
    scanned.map_err(|cause| Shared::engine_error("list", cause))?;
    Ok(page.finish())
}

fn list_open(
    shared: &Open<'_>,
    filter: &Filter,
    after: Option<RecordId>,
    limit: usize,
) -> Result<Page, StoreError> {
    let ids: Vec<_> =
        shared.index.lock().after(after.as_ref()).map(|item| item.id).take(LOOK_AT_MOST + 1).collect();
    let mut page = Pager::new(limit);
    for id in ids {
        let found = found(shared, id);
        let bytes = found.as_ref().map_or(0, |(record, _)| answer_bytes(record));
        let listed = found.map(|found| show(id, found));
        let listed = listed.filter(|listed| filter.matches(&listed.id, &listed.snapshot));
        if page.add(id, bytes, listed) == Visit::Enough {
            break;
        }
    }
    Ok(page.finish())
}

/// Fills a page, and one more to know whether there is a next.
struct Pager {
    limit: usize,
    looked: usize,
    last: Option<RecordId>,
    records: Vec<Listed>,
    /// What was read.
    bytes: usize,
    next: Option<RecordId>,
}

impl Pager {
    fn new(limit: usize) -> Self {
        Self { limit, looked: 0, last: None, records: Vec::new(), bytes: 0, next: None }
    }

    fn add(&mut self, id: RecordId, bytes: usize, listed: Option<Listed>) -> Visit {
        let is_full = self.records.len() == self.limit && listed.is_some();
        if self.looked == LOOK_AT_MOST || self.bytes >= PAGE_BYTES || is_full {
            self.next = self.last;
            return Visit::Enough;
        }
        self.looked += 1;
        self.last = Some(id);
        self.bytes += bytes;
        self.records.extend(listed);
        Visit::More
    }

    fn finish(self) -> Page {
        Page { records: self.records, next: self.next.map(|id| Cursor(id.to_string())) }
    }
}

fn count(shared: &Open<'_>) -> Result<BTreeMap<StateKind, u64>, StoreError> {
    let (records, open) = {
        let index = shared.index.lock();
        (index.records, index.after(None).copied().collect::<Vec<_>>())
    };
    let mut counts = BTreeMap::new();
    let completed = records.saturating_sub(open.len() as u64).saturating_sub(expired(shared)?);
    if completed > 0 {
        counts.insert(StateKind::Completed, completed);
    }
    for item in open {
        if let Some(kind) = state(shared, &item) {
            *counts.entry(kind).or_default() += 1;
        }
    }
    Ok(counts)
}

/// How many completed records have expired and are still there.
fn expired(shared: &Open<'_>) -> Result<u64, StoreError> {
    let now = shared.time.now().moment.as_micros();
    let mut due = Vec::new();
    let scanned =
        shared.engine.scan(keys::expiry_list(0, 0)..=keys::expiry_list(now, u64::MAX), |key, value| {
            due.extend(
                decode_due(key, value).unwrap_or_default().into_iter().filter(|due| due.expires <= now),
            );
            Visit::More
        });
    scanned.map_err(|cause| Shared::engine_error("count", cause))?;
    let is_there = |due: &crate::stored::Due| {
        let record = shared.load(&due.id, "count").ok().flatten();
        let is_meant =
            |record: &Record| record.settled.is_some() && record.expires.as_micros() == due.expires;
        record
            .filter(is_meant)
            .is_some_and(|record| shared.time.kept(record).is_expired(Moment::from_micros(now)))
    };
    Ok(due.iter().filter(|due| is_there(due)).count() as u64)
}

/// The state of an open record by what is in memory, unless it has expired.
fn state(shared: &Open<'_>, item: &OpenItem) -> Option<StateKind> {
    let (lease, now) = shared.leases.look(&item.id, &shared.time);
    let is_running = item.kind == OpenKind::Unsettled && lease.is_some_and(|lease| now.steady < lease.until);
    let expires = shared.time.kept_until(item.created, item.expires);
    if !is_running && expires <= now.moment.as_micros() {
        return None;
    }
    Some(match item.kind {
        _ if is_running => StateKind::Running,
        OpenKind::Released => StateKind::Released,
        OpenKind::Unsettled | OpenKind::Unknown => StateKind::Lapsed,
    })
}

fn may_have_lapsed(shared: &Open<'_>, item: &OpenItem) -> bool {
    state(shared, item) == Some(StateKind::Lapsed)
}

fn listed(shared: &Open<'_>, id: RecordId) -> Option<Listed> {
    found(shared, id).map(|found| show(id, found))
}

fn found(shared: &Open<'_>, id: RecordId) -> Option<(Record, Now)> {
    match shared.read(&id, "list") {
        Ok(found) => found.filter(is_live),
        Err(cause) => {
            tracing::warn!(%id, %cause, "a damaged record was left out of a listing");
            None
        }
    }
}

fn answer_bytes(record: &Record) -> usize {
    match &record.settled {
        Some((Verdict::Completed(answer) | Verdict::Unknown(answer), _)) => answer.0.len(),
        Some((Verdict::Released, _)) | None => 0,
    }
}

fn is_live((record, now): &(Record, Now)) -> bool {
    !record.is_expired(now.moment)
}

fn show(id: RecordId, (record, now): (Record, Now)) -> Listed {
    Listed::new(id, record.snapshot(now.moment))
}
