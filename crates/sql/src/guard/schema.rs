//! The two tables of the guards.

use super::dialect::{Dialect, Speak};
use super::error::GuardError;
use super::session::Session;
use super::statement::{Statement, failed};

pub(super) const DEDUP_TABLE: &str = "onlyonce_dedup";
pub(super) const SEQUENCE_TABLE: &str = "onlyonce_sequence";

/// The SQL that [`migrate`] runs, for those who keep their migrations themselves.
#[must_use]
pub fn schema<DB: Dialect>() -> &'static str {
    DB::SCHEMA
}

/// Creates the tables of the guards where they are missing; safe to run at every start, by many at once.
///
/// MySQL commits the current transaction when a table is created: run it on a connection of its own.
///
/// # Errors
/// If the user may not create tables, or the database fails.
pub async fn migrate<S: Session>(session: &mut S) -> Result<(), GuardError> {
    S::Database::migrate(session.connection()).await.map_err(failed::<S::Database>("migrate"))
}

/// Deletes at most `limit` (and at most 1,000) expired rows of the dedup table and says how many; none means that none is left.
/// Call it now and then, on a connection of its own and not in a transaction: an expired row is no duplicate either way.
///
/// # Errors
/// If a statement fails.
pub async fn sweep<S: Session>(session: &mut S, limit: u32) -> Result<u64, GuardError> {
    sweep_table::<S::Database>(session.connection(), limit.min(1_000)).await
}

/// Finds by the index, deletes by primary key: no range is locked, and many may sweep at once.
async fn sweep_table<DB: Speak>(connection: &mut DB::Connection, limit: u32) -> Result<u64, GuardError> {
    let mut find = Statement::<DB>::new("sweep", "SELECT id FROM ");
    find.table(DEDUP_TABLE)?.push(" WHERE expires_at <= ").push(DB::NOW).push(" ORDER BY expires_at LIMIT ");
    find.bind(&DB::number(i64::from(limit)));
    let found = find.fetch(connection).await?;
    if found.is_empty() {
        return Ok(0);
    }
    let mut delete = Statement::<DB>::new("sweep", "DELETE FROM ");
    delete.table(DEDUP_TABLE)?.push(" WHERE expires_at <= ").push(DB::NOW).push(" AND id IN (");
    for (place, row) in found.iter().enumerate() {
        let id = DB::blob(row, 0).map_err(failed::<DB>("sweep"))?;
        delete.push(if place == 0 { "" } else { ", " }).bind(&DB::bytes(id));
    }
    delete.push(")");
    delete.execute(connection).await
}
