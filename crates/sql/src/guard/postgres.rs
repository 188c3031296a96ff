//! PostgreSQL 14 or newer.

use std::time::Duration;

use sqlx::{Error, Postgres, Row};

use super::dialect::{Dialect, Lock, Speak, common};
use super::error::Fault;
use crate::migrate::is_made;

impl Dialect for Postgres {}

impl Speak for Postgres {
    const QUOTE: char = '"';
    // Not now(): that is when the transaction began.
    const NOW: &'static str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    const INTEGER: &'static str = "bigint";
    const TEXT: &'static str = "text";
    const ON_CONFLICT: bool = true;
    const ROW_LOCKS: bool = true;
    const SECOND_LOOK: bool = true;
    const WRITES_IN_WITH: bool = true;
    const LATEST: &'static str = "";
    const FOR_UPDATE: &'static str = " FOR UPDATE";
    const SCHEMA: &'static str = include_str!("../../migrations/postgres/guards.sql");

    common!();

    fn placeholder(n: usize) -> String {
        format!("${n}")
    }

    fn fault(error: &Error) -> Fault {
        let Some(error) = error.as_database_error() else { return Fault::Other };
        match error.code().as_deref() {
            Some("23505") => Fault::Duplicate(error.constraint().map(str::to_owned)),
            Some("40001" | "40P01") => Fault::RolledBack,
            Some("55P03") => Fault::LockTimeout,
            Some("42P01" | "42703" | "3F000") => Fault::MissingTable,
            Some("42P10") => Fault::NoSuchConstraint,
            Some("25P01") => Fault::NoTransaction,
            Some("42501" | "25006") => Fault::ReadOnly,
            _ => Fault::Other,
        }
    }

    /// A time-out would end the whole transaction here; so a wait is between savepoints, and the setting is put back.
    async fn lock(
        connection: &mut Self::Connection,
        _table: &str,
        mut sql: String,
        arguments: Self::Arguments,
        how: Lock,
        patience: Option<Duration>,
    ) -> Result<Option<Vec<Self::Row>>, Error> {
        if how == Lock::SkipLocked {
            sql.push_str(" FOR UPDATE SKIP LOCKED");
            return Self::fetch(connection, sql, arguments).await.map(Some);
        }
        sql.push_str(" FOR UPDATE");
        let Some(patience) = patience else {
            return Self::fetch(connection, sql, arguments).await.map(Some);
        };
        let set = format!(
            "SAVEPOINT onlyonce_lock; SELECT current_setting('lock_timeout'); SET LOCAL lock_timeout = '{}ms'",
            patience.as_millis().clamp(1, i32::MAX as u128)
        );
        let before: String =
            sqlx::raw_sql(sqlx::AssertSqlSafe(set)).fetch_one(&mut *connection).await?.try_get(0)?;
        match Self::fetch(connection, sql, arguments).await {
            Ok(rows) => {
                // The old value came from the server itself: a number and a unit.
                let restore = format!("SET LOCAL lock_timeout = '{before}'; RELEASE SAVEPOINT onlyonce_lock");
                Self::script(connection, restore).await?;
                Ok(Some(rows))
            }
            Err(error) => {
                let undo = "ROLLBACK TO SAVEPOINT onlyonce_lock; RELEASE SAVEPOINT onlyonce_lock";
                let timed_out = Self::fault(&error) == Fault::LockTimeout;
                if error.as_database_error().is_some() {
                    Self::script(connection, undo.to_owned()).await?;
                }
                if timed_out { Ok(None) } else { Err(error) }
            }
        }
    }

    async fn migrate(connection: &mut Self::Connection) -> Result<(), Error> {
        if is_made::<Self>(connection, Self::SCHEMA).await? {
            return Ok(());
        }
        // IF NOT EXISTS alone fails when two create at once. Statements sent together are one transaction.
        Self::script(connection, format!("SELECT pg_advisory_xact_lock(7161213); {}", Self::SCHEMA)).await
    }
}
