//! Looking through the records.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::{
    Cursor, ErrorKind, Filter, Inspect, Listed, Page, RecordId, StateKind, StoreError, Unresolved,
};

use crate::dialect::Database;
use crate::row;
use crate::statements::{COMPLETED, RELEASED, RUNNING, UNKNOWN, placed};
use crate::store::SqlStore;
use crate::value::Value;

/// The most records of one page.
const LONGEST: u32 = 10_000;

/// Rows that were read: those that can be understood, how many there were, and the id of the last.
struct Rows {
    records: Vec<Listed>,
    count: usize,
    last: Option<RecordId>,
}

impl<DB: Database> SqlStore<DB> {
    /// What is no record is left out, with a warning: one damaged row must not hide all others.
    async fn listed(
        &self,
        call: &'static str,
        more: &str,
        arguments: Vec<Value>,
    ) -> Result<Rows, StoreError> {
        let link = self.link();
        let now = DB::NOW.unwrap_or("{now}");
        let sql = format!("{} {}", link.statements.list_template, more.replace("{now}", now));
        let rows = link.rows(call, &placed::<DB>(&sql), arguments).await?;
        let mut records = Vec::with_capacity(rows.len());
        for row in &rows {
            match link.read(call, row) {
                Ok(found) => records.push(Listed::new(found.id, found.record.snapshot(found.now.moment))),
                Err(error) => {
                    let id = row::id_of::<DB>(row).map_or_else(|| "?".to_owned(), |id| id.to_string());
                    tracing::warn!(id, error = &error as &dyn std::error::Error, "a record can't be read");
                }
            }
        }
        Ok(Rows { records, count: rows.len(), last: rows.last().and_then(row::id_of::<DB>) })
    }
}

/// The condition of a state, by the clock of the server.
fn condition(state: StateKind) -> &'static str {
    match state {
        StateKind::Running => " AND status = 0 AND lease_until > {now}",
        StateKind::Lapsed => LAPSED,
        StateKind::Released => " AND status = 2",
        StateKind::Completed => " AND status = 1",
    }
}

const LAPSED: &str = " AND (status = 3 OR (status = 0 AND lease_until <= {now}))";

#[async_trait]
impl<DB: Database> Inspect for SqlStore<DB> {
    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: u32) -> Result<Page, StoreError> {
        let mut sql = filter.state.map(condition).unwrap_or_default().to_owned();
        let mut arguments = Vec::new();
        let mut with = |condition: &str, value: Value| {
            arguments.push(value);
            let _ = write!(sql, " AND {condition} ${}", arguments.len());
        };
        if let Some(route) = &filter.route {
            with("route =", Value::bytes(route.as_bytes()));
        }
        if let Some(key) = &filter.key {
            with("key_hash =", Value::bytes(key.as_bytes()));
        }
        if let Some(scope) = &filter.scope {
            with("scope_hash =", Value::bytes(scope.as_bytes()));
        }
        if let Some(ids) = &filter.ids {
            with("id >=", Value::bytes(ids.start().as_bytes()));
            with("id <=", Value::bytes(ids.end().as_bytes()));
        }
        if let Some(after) = after {
            let id: RecordId = after.0.parse().map_err(|_| {
                StoreError::new(ErrorKind::Rejected, DB::WORD, "list", "the cursor is not one of this store")
            })?;
            with("id >", Value::bytes(id.as_bytes()));
        }
        let limit = limit.clamp(1, LONGEST);
        arguments.push(Value::Int(limit.into()));
        // An id of another length is no place to go on from, and no call ever asks for it.
        let _ = write!(sql, " AND LENGTH(id) = 32 ORDER BY id LIMIT ${}", arguments.len());
        let Rows { records, count, last } = self.listed("list", &sql, arguments).await?;
        let next = last.filter(|_| count == limit as usize).map(|last| Cursor(last.to_string()));
        Ok(Page { records, next })
    }

    async fn count(&self) -> Result<BTreeMap<StateKind, u64>, StoreError> {
        let link = self.link();
        let rows = link.rows("count", &link.statements.count, Vec::new()).await?;
        let mut counts = BTreeMap::new();
        for row in &rows {
            let read =
                |column| DB::int(row, column).map_err(|cause| StoreError::corrupt(DB::WORD, "count", cause));
            let state = match read(0)? {
                RUNNING => StateKind::Running,
                COMPLETED => StateKind::Completed,
                RELEASED => StateKind::Released,
                UNKNOWN => StateKind::Lapsed,
                status => {
                    tracing::warn!(status, "records have a status that this release does not know");
                    continue;
                }
            };
            *counts.entry(state).or_default() += read(1)?.unsigned_abs();
        }
        Ok(counts)
    }

    async fn lapsed(&self, limit: u32) -> Result<Vec<Listed>, StoreError> {
        let sql = format!("AND status <> 1{LAPSED} ORDER BY created_at, id LIMIT $1 OFFSET $2");
        let (limit, mut passed) = (limit.clamp(1, LONGEST) as usize, 0);
        let mut lapsed = Vec::new();
        // Again for those that can't be read, so that the oldest of them do not hide the others.
        loop {
            let wanted = limit - lapsed.len();
            let arguments =
                [wanted, passed].map(|number| Value::Int(i64::try_from(number).unwrap_or(i64::MAX)));
            let Rows { records, count, .. } = self.listed("lapsed", &sql, arguments.into()).await?;
            lapsed.extend(records);
            passed += count;
            if count < wanted || lapsed.len() >= limit {
                return Ok(lapsed);
            }
        }
    }

    async fn unresolved(&self, limit: u32) -> Result<Unresolved, StoreError> {
        let link = self.link();
        let now = DB::NOW.unwrap_or("{now}");
        // There may be many released records: an index that begins with the status leaves them out.
        let sql =
            format!("{} AND status <> 1 AND status IN (0, 3){LAPSED}", link.statements.unresolved_template);
        let sql = sql.replace("{now}", now) + " ORDER BY created_at LIMIT $1) AS lapsed";
        let arguments = vec![Value::Int(limit.clamp(1, LONGEST).into())];
        let rows = link.rows("unresolved", &placed::<DB>(&sql), arguments).await?;
        let row = rows.first().ok_or_else(|| StoreError::corrupt(DB::WORD, "unresolved", "no row"))?;
        let read =
            |column| DB::int(row, column).map_err(|cause| StoreError::corrupt(DB::WORD, "unresolved", cause));
        let (count, silent, age) = (read(0)?.unsigned_abs(), read(1)?.unsigned_abs(), read(2)?);
        let oldest = (count > 0).then(|| Duration::from_micros(u64::try_from(age).unwrap_or_default()));
        Ok(Unresolved { count, silent, oldest })
    }
}
