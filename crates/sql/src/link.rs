//! The way to the database: a connection, a statement, an answer in time.

use std::time::Duration;

use onlyonce_core::{Snapshot, StoreError, Timeline};
use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, Pool};

use crate::clock;
use crate::dialect::{Dialect, Done, Flavour};
use crate::fault::{self, Fault, When};
use crate::late;
use crate::pooled::Pooled;
use crate::row::{self, Found, Unread};
use crate::statements::{Statement, Statements};
use crate::table::Table;
use crate::value::Value;

/// What every call needs.
#[derive(Debug)]
pub(crate) struct Link<DB: Dialect> {
    pub(crate) pool: Pool<DB>,
    pub(crate) statements: Statements,
    /// The time of the records, where the database has no clock that would do.
    pub(crate) time: Timeline,
    pub(crate) table: Table,
    pub(crate) flavour: Flavour,
    /// The largest message that the server takes, where it has a limit of its own.
    pub(crate) largest: Option<usize>,
    /// How long a statement may take.
    pub(crate) patience: Duration,
}

impl<DB: Dialect> Link<DB> {
    pub(crate) async fn connection(&self, call: &'static str) -> Result<PoolConnection<DB>, StoreError> {
        self.pool.acquire().await.map_err(|cause| fault::during::<DB>(call, When::Before, cause))
    }

    /// The arguments, with the time where the statement wants to be told.
    pub(crate) fn timed(&self, statement: &Statement, mut arguments: Vec<Value>) -> Vec<Value> {
        if statement.timed {
            arguments.push(row::micros(self.time.now()));
        }
        if statement.held {
            arguments.push(row::micros(self.time.stepped()));
        }
        arguments
    }

    /// Waits for an answer, but not for ever: a connection that owes one is not used again.
    pub(crate) async fn in_time<T>(
        &self,
        call: &'static str,
        connection: &mut PoolConnection<DB>,
        answer: impl AsyncFnOnce(&mut DB::Connection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let failed = match tokio::time::timeout(self.patience, answer(connection)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error,
            Err(_) => late::error(self.patience),
        };
        if !matches!(failed, sqlx::Error::Database(_)) {
            connection.close_on_drop();
        }
        Err(fault::during::<DB>(call, When::During, failed))
    }

    /// One statement that changes rows.
    pub(crate) async fn run(
        &self,
        call: &'static str,
        statement: &Statement,
        arguments: Vec<Value>,
    ) -> Result<Done, StoreError> {
        let sql = statement.sql.clone();
        self.in_turn(call, async |connection| {
            DB::run(connection, sql, self.timed(statement, arguments)).await
        })
        .await
    }

    /// A change by one statement. Where the database is told the time, it is told when it is this one's turn to write: a time from
    /// before the wait would renew what others were told has lapsed, and give fences out that others had passed.
    pub(crate) async fn in_turn<T>(
        &self,
        call: &'static str,
        change: impl AsyncFnOnce(&mut DB::Connection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let mut connection = self.connection(call).await?;
        if DB::NOW.is_some() {
            return self.in_time(call, &mut connection, change).await;
        }
        // Whoever drops this half-way leaves no open transaction in the pool.
        let mut connection = Pooled::new(connection);
        connection.begin_change();
        let turn = async |connection: &mut DB::Connection| {
            let mut turn = connection.begin_with(DB::BEGIN).await?;
            // Before anything rests on it: what a call was told must hold after a reboot too, whether or not anybody swept.
            let note = clock::write::<DB>(&mut turn, &self.table, &self.time).await?;
            let changed = change(&mut turn).await?;
            turn.commit().await?;
            if let Some(note) = note {
                self.time.noted(&note);
            }
            Ok(changed)
        };
        let changed = self.in_time(call, connection.connection(), turn).await?;
        connection.end_change();
        Ok(changed)
    }

    /// One statement that reads rows.
    pub(crate) async fn rows(
        &self,
        call: &'static str,
        statement: &Statement,
        arguments: Vec<Value>,
    ) -> Result<Vec<DB::Row>, StoreError> {
        let mut connection = self.connection(call).await?;
        let (sql, arguments) = (statement.sql.clone(), self.timed(statement, arguments));
        self.in_time(call, &mut connection, async |connection| DB::rows(connection, sql, arguments).await)
            .await
    }

    /// The record, also an expired one.
    pub(crate) async fn find(
        &self,
        call: &'static str,
        id: &onlyonce_core::RecordId,
    ) -> Result<Option<Found>, StoreError> {
        let rows = self.rows(call, &self.statements.select, vec![row::id(id)]).await?;
        rows.first().map(|row| self.read(call, row)).transpose()
    }

    /// The record of a row, as it is kept.
    pub(crate) fn read(&self, call: &'static str, row: &DB::Row) -> Result<Found, StoreError> {
        let found = row::read::<DB>(row).map_err(|unread| match unread {
            Unread::Driver(cause) => StoreError::corrupt(DB::WORD, call, Fault::unread(cause)),
            Unread::Damaged(damaged) => StoreError::corrupt(DB::WORD, call, damaged),
        })?;
        Ok(match DB::NOW {
            Some(_) => found,
            None => Found { record: found.record.kept_since(self.time.stepped()), ..found },
        })
    }
}

/// The record as others may see it; an expired one is absent.
pub(crate) fn snapshot(found: Option<Found>) -> Option<Snapshot> {
    let found = found?;
    let now = found.now.moment;
    (!found.record.is_expired(now)).then(|| found.record.snapshot(now))
}
