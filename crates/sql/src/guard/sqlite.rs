//! SQLite, where one writer at a time holds the whole database.

use std::time::Duration;

use futures_util::FutureExt as _;
use onlyonce_core::{Clock, SystemClock};
use sqlx::{Error, Row, Sqlite, SqliteConnection};

use super::dialect::{Dialect, Lock, Speak, common};
use super::error::Fault;
use super::ident;
use crate::migrate::is_made;

impl Dialect for Sqlite {}

/// A connection that waits for a while only. Its own time is put back at the end, also where nobody waits for that: SQLite has no
/// time that belongs to a statement, and a guard may be dropped half-way on a connection that goes back to its pool.
struct ShortWait<'c> {
    connection: &'c mut SqliteConnection,
    before: Option<i64>,
}

impl<'c> ShortWait<'c> {
    async fn begin(connection: &'c mut SqliteConnection, patience: Duration) -> Result<Self, Error> {
        let before = sqlx::query("PRAGMA busy_timeout").fetch_one(&mut *connection).await?.try_get(0)?;
        let short = Self { connection, before: Some(before) };
        // More would be read as less than nothing.
        let millis = patience.as_millis().min(i32::MAX as u128);
        Sqlite::script(short.connection, format!("PRAGMA busy_timeout = {millis}")).await?;
        Ok(short)
    }

    async fn end(&mut self) -> Result<(), Error> {
        if let Some(before) = self.before {
            Sqlite::script(self.connection, format!("PRAGMA busy_timeout = {before}")).await?;
            self.before = None;
        }
        Ok(())
    }
}

impl Drop for ShortWait<'_> {
    fn drop(&mut self) {
        // The first look at it hands it to the connection's own thread, which does it after what it does now and before all else.
        let _ = self.end().now_or_never();
    }
}

impl Speak for Sqlite {
    const QUOTE: char = '"';
    // In milliseconds, which is all that it tells.
    const NOW: &'static str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";
    const INTEGER: &'static str = "INTEGER";
    const TEXT: &'static str = "TEXT";
    const ON_CONFLICT: bool = true;
    const ROW_LOCKS: bool = false;
    const SECOND_LOOK: bool = false;
    const WRITES_IN_WITH: bool = false;
    const LATEST: &'static str = "";
    const FOR_UPDATE: &'static str = "";
    const SCHEMA: &'static str = include_str!("../../migrations/sqlite/guards.sql");

    common!();

    fn fine_now() -> Option<i64> {
        i64::try_from(SystemClock.wall_micros()).ok()
    }

    fn fault(error: &Error) -> Fault {
        let Some(error) = error.as_database_error() else { return Fault::Other };
        let code = error.code().and_then(|code| code.parse::<u32>().ok()).unwrap_or_default();
        let says = error.message();
        match code {
            1555 | 2067 => Fault::Duplicate(None), // primary key, unique
            517 => Fault::RolledBack, // a snapshot from before another write: BEGIN IMMEDIATE avoids it
            _ if matches!(code & 0xff, 5 | 6) => Fault::LockTimeout,
            _ if code & 0xff == 8 => Fault::ReadOnly,
            1 if says.starts_with("no such table") || says.contains("no column named") => Fault::MissingTable,
            1 if says.starts_with("no such column") => Fault::MissingTable,
            1 if says.starts_with("ON CONFLICT clause does not match") => Fault::NoSuchConstraint,
            _ => Fault::Other,
        }
    }

    /// There are no row locks: the write lock of the database is taken, which after `BEGIN IMMEDIATE` is held already.
    async fn lock(
        connection: &mut Self::Connection,
        table: &str,
        sql: String,
        arguments: Self::Arguments,
        how: Lock,
        patience: Option<Duration>,
    ) -> Result<Option<Vec<Self::Row>>, Error> {
        let patience = if how == Lock::SkipLocked { Some(Duration::ZERO) } else { patience };
        let table = ident::quoted_table(table, Self::QUOTE).map_err(|error| Error::Encode(error.into()))?;
        let write = format!("DELETE FROM {table} WHERE 0");
        let written = match patience {
            None => Self::script(connection, write).await,
            Some(patience) => {
                let mut short = ShortWait::begin(connection, patience).await?;
                let written = Self::script(short.connection, write).await;
                short.end().await?;
                written
            }
        };
        match written {
            Ok(()) => Self::fetch(connection, sql, arguments).await.map(Some),
            Err(error) if Self::fault(&error) == Fault::LockTimeout => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn migrate(connection: &mut Self::Connection) -> Result<(), Error> {
        if is_made::<Self>(connection, Self::SCHEMA).await? {
            return Ok(());
        }
        Self::script(connection, Self::SCHEMA.to_owned()).await
    }
}
