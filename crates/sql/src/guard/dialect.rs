//! The small part in which the three databases differ.

use std::future::Future;
use std::time::Duration;

use sqlx::{Database, Error};

use super::error::Fault;
use super::statement::Value;

/// One of the databases that the guards speak: `sqlx::MySql` (also for MariaDB), `sqlx::Postgres` and `sqlx::Sqlite`.
pub trait Dialect: Speak {}

/// How a row is read for its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Only what is free.
    SkipLocked,
    /// Wait for it.
    Wait,
}

/// The dialect itself. Sealed: it can't be named outside of this crate.
pub trait Speak: Database<Connection: Send, Row: Send + Sync, Arguments: Send> {
    /// What names are quoted with.
    const QUOTE: char;
    /// The database's clock, in microseconds since 1970.
    const NOW: &'static str;
    /// The type to cast whole numbers to.
    const INTEGER: &'static str;
    /// The type to cast text to.
    const TEXT: &'static str;
    /// Whether there is `INSERT … ON CONFLICT`; else a duplicate is an error, after which the transaction goes on.
    const ON_CONFLICT: bool;
    /// Whether rows are locked one by one; else one transaction at a time writes, and asking before would end the wait.
    const ROW_LOCKS: bool;
    /// Whether a plain `SELECT` tells what a locking one passed over. Else it may look into the past, and only another locking one tells.
    const SECOND_LOOK: bool;
    /// Whether statements that write can be parts of one `WITH`.
    const WRITES_IN_WITH: bool;
    /// Reads the newest committed row, whatever the isolation level, without keeping other readers out.
    const LATEST: &'static str;
    /// Reads the newest committed row and locks it.
    const FOR_UPDATE: &'static str;
    /// The SQL of the tables.
    const SCHEMA: &'static str;

    /// The `n`th placeholder, from 1.
    fn placeholder(n: usize) -> String {
        let _ = n;
        "?".to_owned()
    }

    /// The time in microseconds where `NOW` is coarser; SQLite runs in this process, by the same clock.
    fn fine_now() -> Option<i64> {
        None
    }

    /// What the error left behind.
    fn fault(error: &Error) -> Fault;

    /// Runs the statement and says how many rows it touched.
    fn execute(
        connection: &mut Self::Connection,
        sql: String,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Runs the statement and collects its rows.
    fn fetch(
        connection: &mut Self::Connection,
        sql: String,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Vec<Self::Row>, Error>> + Send;

    /// Runs several statements without arguments.
    fn script(
        connection: &mut Self::Connection,
        sql: String,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Runs a `SELECT` for locks: what is free, or waiting for at most `patience` (`None`: as long as the server lets it; with none at
    /// all only where there is no [`SECOND_LOOK`](Self::SECOND_LOOK)).
    /// `Ok(None)` means that the wait was over, and the transaction goes on.
    fn lock(
        connection: &mut Self::Connection,
        table: &str,
        sql: String,
        arguments: Self::Arguments,
        how: Lock,
        patience: Option<Duration>,
    ) -> impl Future<Output = Result<Option<Vec<Self::Row>>, Error>> + Send;

    /// Creates the tables, safe beside another who does.
    fn migrate(connection: &mut Self::Connection) -> impl Future<Output = Result<(), Error>> + Send;

    /// The columns of the unique index with this name, where the database does not look by itself whether they are those that a
    /// guard names. `None` where it does, and for an index that can't be seen.
    fn unique_columns(
        connection: &mut Self::Connection,
        table: &str,
        index: &str,
    ) -> impl Future<Output = Result<Option<Vec<String>>, Error>> + Send {
        let _ = (connection, table, index);
        std::future::ready(Ok(None))
    }

    /// The column as a whole number, unless it is NULL.
    fn integer(row: &Self::Row, column: usize) -> Result<Option<i64>, Error>;

    /// The column as text, unless it is NULL.
    fn text(row: &Self::Row, column: usize) -> Result<Option<String>, Error>;

    /// The column as bytes.
    fn blob(row: &Self::Row, column: usize) -> Result<Vec<u8>, Error>;

    /// How many columns there are.
    fn width(row: &Self::Row) -> usize;

    /// Binds bytes.
    fn bytes(bytes: Vec<u8>) -> Value<'static, Self>;

    /// Binds a whole number.
    fn number(number: i64) -> Value<'static, Self>;

    /// Binds text.
    fn string(text: String) -> Value<'static, Self>;
}

/// What every dialect does in the same words, because generic code can't say it.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
macro_rules! common {
    () => {
        async fn execute(
            connection: &mut Self::Connection,
            sql: String,
            arguments: Self::Arguments,
        ) -> Result<u64, Error> {
            let query = sqlx::query_with(sqlx::AssertSqlSafe(sql), arguments);
            Ok(query.execute(connection).await?.rows_affected())
        }

        async fn fetch(
            connection: &mut Self::Connection,
            sql: String,
            arguments: Self::Arguments,
        ) -> Result<Vec<Self::Row>, Error> {
            sqlx::query_with(sqlx::AssertSqlSafe(sql), arguments).fetch_all(connection).await
        }

        async fn script(connection: &mut Self::Connection, sql: String) -> Result<(), Error> {
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await.map(drop)
        }

        fn integer(row: &Self::Row, column: usize) -> Result<Option<i64>, Error> {
            sqlx::Row::try_get(row, column)
        }

        fn text(row: &Self::Row, column: usize) -> Result<Option<String>, Error> {
            sqlx::Row::try_get(row, column)
        }

        fn blob(row: &Self::Row, column: usize) -> Result<Vec<u8>, Error> {
            sqlx::Row::try_get(row, column)
        }

        fn width(row: &Self::Row) -> usize {
            sqlx::Row::len(row)
        }

        fn bytes(bytes: Vec<u8>) -> crate::guard::statement::Value<'static, Self> {
            crate::guard::statement::value(bytes)
        }

        fn number(number: i64) -> crate::guard::statement::Value<'static, Self> {
            crate::guard::statement::value(number)
        }

        fn string(text: String) -> crate::guard::statement::Value<'static, Self> {
            crate::guard::statement::value(text)
        }
    };
}
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(super) use common;
