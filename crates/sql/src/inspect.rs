//! Looking through the records.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use async_trait::async_trait;
use onlyonce_core::{Cursor, ErrorKind, Filter, Inspect, Listed, Page, RecordId, StateKind, StoreError};

use crate::dialect::Database;
use crate::link::read;
use crate::row::Found;
use crate::statements::{COMPLETED, RELEASED, RUNNING, placed};
use crate::store::SqlStore;
use crate::value::Value;

/// The most records of one page.
const LONGEST: u32 = 10_000;

impl<DB: Database> SqlStore<DB> {
    async fn listed(
        &self,
        call: &'static str,
        more: &str,
        arguments: Vec<Value>,
    ) -> Result<Vec<Listed>, StoreError> {
        let link = self.link();
        let now = DB::NOW.unwrap_or("{now}");
        let sql = format!("{} {}", link.statements.list_template, more.replace("{now}", now));
        let rows = link.rows(call, &placed::<DB>(&sql), arguments).await?;
        rows.iter().map(|row| read::<DB>(call, row).map(listed)).collect()
    }
}

fn listed(found: Found) -> Listed {
    Listed { id: found.id, snapshot: found.record.snapshot(found.now.moment) }
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
        if let Some(after) = after {
            let id: RecordId = after.0.parse().map_err(|_| {
                StoreError::new(ErrorKind::Rejected, DB::WORD, "list", "the cursor is not one of this store")
            })?;
            with("id >", Value::bytes(id.as_bytes()));
        }
        let limit = limit.clamp(1, LONGEST);
        arguments.push(Value::Int(limit.into()));
        let _ = write!(sql, " ORDER BY id LIMIT ${}", arguments.len());
        let records = self.listed("list", &sql, arguments).await?;
        let full = records.len() == limit as usize;
        let next = records.last().filter(|_| full).map(|last| Cursor(last.id.to_string()));
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
                _ => StateKind::Lapsed,
            };
            *counts.entry(state).or_default() += read(1)?.unsigned_abs();
        }
        Ok(counts)
    }

    async fn lapsed(&self, limit: u32) -> Result<Vec<Listed>, StoreError> {
        let sql = format!("AND status <> 1{LAPSED} ORDER BY created_at, id LIMIT $1");
        self.listed("lapsed", &sql, vec![Value::Int(limit.clamp(1, LONGEST).into())]).await
    }
}
