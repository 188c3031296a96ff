//! Bringing the schema up to date, and saying what is missing.

use crate::dialect::{Dialect, Meaning};
use crate::statements::safe;
use crate::table::Table;

/// How far the schema is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schema {
    Missing,
    At(usize),
}

/// Which migrations there were.
pub(crate) async fn schema<DB: Dialect>(
    connection: &mut DB::Connection,
    table: &Table,
) -> Result<Schema, sqlx::Error> {
    let sql = safe(format!("SELECT COALESCE(MAX(version), 0){} FROM {}", DB::WIDE, table.migrations()));
    match DB::rows(connection, sql, Vec::new()).await {
        Ok(rows) => {
            let version = rows.first().map(|row| DB::int(row, 0)).transpose()?.unwrap_or(0);
            Ok(Schema::At(usize::try_from(version).unwrap_or(0)))
        }
        Err(error) if DB::meaning(&error) == Meaning::NoTable => Ok(Schema::Missing),
        Err(error) => Err(error),
    }
}

/// Whether there is nothing to migrate. Asked before any lock is taken: a start must not wait for the transactions of others, nor let theirs
/// wait for it.
pub(crate) async fn is_done<DB: Dialect>(
    connection: &mut DB::Connection,
    table: &Table,
) -> Result<bool, sqlx::Error> {
    Ok(
        matches!(schema::<DB>(connection, table).await?, Schema::At(version) if version >= DB::MIGRATIONS.len()),
    )
}

/// Whether all tables and indexes that a shipped file creates are there, by the catalogue. `CREATE INDEX IF NOT EXISTS` waits for every
/// writer of its table before it looks, and lets all others wait behind it.
pub(crate) async fn is_made<DB: Dialect>(
    connection: &mut DB::Connection,
    file: &str,
) -> Result<bool, sqlx::Error> {
    let names = created(file);
    let list: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    let sql = safe(DB::CATALOGUE.replace("{names}", &list.join(", ")));
    let rows = DB::rows(connection, sql, Vec::new()).await?;
    let found = rows.first().map(|row| DB::int(row, 0)).transpose()?;
    Ok(found.and_then(|found| usize::try_from(found).ok()) == Some(names.len()))
}

/// The names that follow `TABLE IF NOT EXISTS` and `INDEX IF NOT EXISTS`.
fn created(file: &str) -> Vec<&str> {
    let words: Vec<&str> = file.split_whitespace().collect();
    let creates = |words: &&[&str]| matches!(words, ["TABLE" | "INDEX", "IF", "NOT", "EXISTS", _]);
    words.windows(5).filter(creates).map(|words| words[4]).collect()
}

/// Applies what is missing, in order.
pub(crate) async fn missing<DB: Dialect>(
    connection: &mut DB::Connection,
    table: &Table,
) -> Result<(), sqlx::Error> {
    let there = match schema::<DB>(connection, table).await? {
        Schema::Missing => 0,
        Schema::At(version) => version,
    };
    for (number, (name, sql)) in DB::MIGRATIONS.iter().enumerate().skip(there) {
        tracing::info!(table = %table, migration = name, "migrating");
        match DB::raw(connection, safe(table.rename(sql))).await {
            Ok(_) => {}
            // It was applied before, by somebody who died before that was noted.
            Err(error) if DB::was_there(&error) => {
                let noted = format!("INSERT INTO {} (version) VALUES ({})", table.migrations(), number + 1);
                DB::raw(connection, safe(noted)).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_creates_is_read_from_it() {
        let outbox = include_str!("../migrations/postgres/outbox.sql");
        assert!(
            created(outbox).starts_with(&["onlyonce_outbox", "onlyonce_outbox_due"]),
            "{:?}",
            created(outbox)
        );
        let guards = include_str!("../migrations/mysql/guards.sql");
        assert_eq!(created(guards), ["onlyonce_dedup", "onlyonce_sequence"]);
    }
}
