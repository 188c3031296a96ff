//! A connection that goes back to its pool only as it was.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sqlx::Pool;
use sqlx::pool::PoolConnection;

use crate::dialect::Dialect;
use crate::late::in_time;

/// A connection of a pool whose session is changed for a while: locks, settings, a transaction. Dropped between the beginning of a change
/// and its end, it is closed, and the server undoes what is left. No error of a server says for sure that a connection is gone, and what
/// was meant for one call must not meet whoever uses the connection next.
pub(crate) struct Pooled<DB: Dialect> {
    connection: PoolConnection<DB>,
    is_changed: bool,
}

impl<DB: Dialect> Pooled<DB> {
    pub(crate) fn new(connection: PoolConnection<DB>) -> Self {
        Self { connection, is_changed: false }
    }

    pub(crate) fn connection(&mut self) -> &mut PoolConnection<DB> {
        &mut self.connection
    }

    pub(crate) fn begin_change(&mut self) {
        self.is_changed = true;
    }

    /// Nothing is left of it.
    pub(crate) fn end_change(&mut self) {
        self.is_changed = false;
    }
}

impl<DB: Dialect> Deref for Pooled<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.connection
    }
}

impl<DB: Dialect> DerefMut for Pooled<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.connection
    }
}

impl<DB: Dialect> Drop for Pooled<DB> {
    fn drop(&mut self) {
        if self.is_changed {
            self.connection.close_on_drop();
        }
    }
}

/// Asks on a connection of the pool. Whoever drops this half-way, or is not answered in time, leaves nothing there: no open transaction,
/// and no connection that owes an answer.
pub(crate) async fn answered<DB: Dialect, T, E>(
    pool: &Pool<DB>,
    patience: Duration,
    failed: impl Fn(sqlx::Error) -> E,
    ask: impl AsyncFnOnce(&mut DB::Connection) -> Result<T, E>,
) -> Result<T, E> {
    let mut connection = Pooled::<DB>::new(pool.acquire().await.map_err(&failed)?);
    connection.begin_change();
    let answer = in_time::<DB, _, _>(patience, &failed, ask(&mut connection)).await?;
    connection.end_change();
    Ok(answer)
}
