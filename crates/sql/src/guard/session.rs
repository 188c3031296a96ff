//! Where a guard runs.

use sqlx::Database;
use sqlx::Transaction;
use sqlx::pool::PoolConnection;

use super::dialect::Dialect;

/// A connection that a guard can use: a transaction, a connection, or one of a pool.
///
/// Only in a transaction are a guard and what you do by its outcome one step.
pub trait Session: Send {
    /// The database behind it.
    type Database: Dialect;

    /// The connection itself.
    fn connection(&mut self) -> &mut <Self::Database as Database>::Connection;
}

impl<DB: Dialect> Session for Transaction<'_, DB> {
    type Database = DB;

    fn connection(&mut self) -> &mut DB::Connection {
        self
    }
}

impl<DB: Dialect> Session for PoolConnection<DB> {
    type Database = DB;

    fn connection(&mut self) -> &mut DB::Connection {
        self
    }
}

#[cfg(feature = "mysql")]
impl Session for sqlx::MySqlConnection {
    type Database = sqlx::MySql;

    fn connection(&mut self) -> &mut Self {
        self
    }
}

#[cfg(feature = "postgres")]
impl Session for sqlx::PgConnection {
    type Database = sqlx::Postgres;

    fn connection(&mut self) -> &mut Self {
        self
    }
}

#[cfg(feature = "sqlite")]
impl Session for sqlx::SqliteConnection {
    type Database = sqlx::Sqlite;

    fn connection(&mut self) -> &mut Self {
        self
    }
}
