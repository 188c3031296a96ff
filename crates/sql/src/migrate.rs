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
