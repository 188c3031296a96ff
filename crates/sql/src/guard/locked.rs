//! The pessimistic lock: nobody else changes the row until the transaction ends.

use std::fmt;
use std::time::Duration;

use sqlx::Database;

use super::dialect::{Dialect, Lock};
use super::error::GuardError;
use super::session::Session;
use super::statement::{Bindable, Pair, Statement, Value, failed, integer, value};

const GUARD: &str = "locked";

/// Whether rows could be locked.
#[derive(Debug)]
pub enum Locked<R> {
    /// Locked until the transaction ends, and this is what is in it.
    Held(R),
    /// Another transaction has it, and the wait was over. The transaction goes on.
    Busy,
    /// There is no such row.
    Missing,
}

/// Rows to be locked; see [`locked`].
#[must_use = "nothing is locked before `one`, `all` or `some`"]
pub struct RowLock<'a, DB: Database> {
    table: String,
    key: Vec<Pair<'a, DB>>,
    many: Option<(String, Vec<Value<'a, DB>>)>,
    order: Option<String>,
    wait: Wait,
}

#[derive(Debug, Clone, Copy)]
enum Wait {
    AtMost(Duration),
    AsTheServer,
}

/// Locks rows for the rest of the transaction (`SELECT … FOR UPDATE`). It waits for at most 5 seconds, unless it is told
/// otherwise; that a row stays locked is the outcome [`Locked::Busy`], after which the transaction goes on.
///
/// The key has to be the primary key or a unique one: on MySQL others lock more than their rows.
///
/// SQLite has no row locks: the write lock of the whole database is taken, for which two transactions wait in turn. Begin with
/// `BEGIN IMMEDIATE` (`pool.begin_with("BEGIN IMMEDIATE")`): a transaction that has read before another one wrote can't get the
/// lock any more, and fails with [`RolledBack`](super::GuardErrorKind::RolledBack).
///
/// ```
/// # use onlyonce_sql::guard::*;
/// # use sqlx::Row;
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
/// # sqlx::query("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER)").execute(&pool).await?;
/// # sqlx::query("INSERT INTO accounts VALUES (123, 150)").execute(&pool).await?;
/// let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
/// match locked("accounts").key("id", 123).one(&mut tx).await? {
///     Locked::Held(account) => assert_eq!(account.get::<i64, _>("balance"), 150),
///     Locked::Busy => println!("try again later"),
///     Locked::Missing => println!("no such account"),
/// }
/// # Ok(()) }
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// ```
pub fn locked<'a, DB: Dialect>(table: impl Into<String>) -> RowLock<'a, DB> {
    let wait = Wait::AtMost(Duration::from_secs(5));
    RowLock { table: table.into(), key: Vec::new(), many: None, order: None, wait }
}

impl<'a, DB: Dialect> RowLock<'a, DB> {
    /// A column that has to have this value; all of the key, if it has several.
    pub fn key(mut self, column: impl Into<String>, value: impl Bindable<'a, DB>) -> Self {
        self.key.push(Pair::new(column, value));
        self
    }

    /// Several rows, by the values of one column, for [`all`](Self::all). They are sorted, and locked in the order of that
    /// column, so that two transactions with some in common never wait for each other.
    pub fn keys<V: Bindable<'a, DB> + Ord>(
        mut self,
        column: impl Into<String>,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        let mut values: Vec<V> = values.into_iter().collect();
        values.sort();
        values.dedup();
        self.many = Some((column.into(), values.into_iter().map(value).collect()));
        self
    }

    /// Which are taken first by [`some`](Self::some).
    pub fn order_by(mut self, column: impl Into<String>) -> Self {
        self.order = Some(column.into());
        self
    }

    /// Waits for a row for at most this long (MariaDB counts in whole seconds, upwards).
    pub fn wait(mut self, patience: Duration) -> Self {
        self.wait = Wait::AtMost(patience);
        self
    }

    /// Does not wait (`NOWAIT`).
    pub fn no_wait(self) -> Self {
        self.wait(Duration::ZERO)
    }

    /// Waits for as long as the server lets it. Locking several rows is then one round trip everywhere (else three on PostgreSQL);
    /// but on PostgreSQL the server's time-out ends the transaction, and is an error.
    pub fn wait_as_the_server(mut self) -> Self {
        self.wait = Wait::AsTheServer;
        self
    }

    /// Locks the one row with this key.
    ///
    /// # Errors
    /// If no key is given, or a statement fails.
    pub async fn one<S: Session<Database = DB>>(
        self,
        session: &mut S,
    ) -> Result<Locked<DB::Row>, GuardError> {
        if self.many.is_some() {
            return Err(GuardError::input(GUARD, "several keys are locked with `all`"));
        }
        if self.key.is_empty() {
            return Err(GuardError::input(GUARD, "which row? say `.key(column, value)`"));
        }
        Ok(match self.lock(session.connection(), 1).await? {
            Locked::Held(rows) => rows.into_iter().next().map_or(Locked::Missing, Locked::Held),
            Locked::Busy => Locked::Busy,
            Locked::Missing => Locked::Missing,
        })
    }

    /// Locks all rows of [`keys`](Self::keys), in the order of their keys; missing if one of them is. Of an empty list all are held.
    ///
    /// # Errors
    /// If `keys` was not said, or a statement fails.
    pub async fn all<S: Session<Database = DB>>(
        self,
        session: &mut S,
    ) -> Result<Locked<Vec<DB::Row>>, GuardError> {
        let count = match &self.many {
            Some((_, values)) if values.is_empty() => return Ok(Locked::Held(Vec::new())),
            Some((_, values)) => values.len(),
            None => return Err(GuardError::input(GUARD, "which rows? say `.keys(column, values)`")),
        };
        self.lock(session.connection(), count).await
    }

    /// Locks at most `limit` rows that nobody else has (`SKIP LOCKED`): a queue from which each takes others. On SQLite none, while
    /// somebody writes.
    ///
    /// # Errors
    /// If a statement fails.
    pub async fn some<S: Session<Database = DB>>(
        self,
        session: &mut S,
        limit: u32,
    ) -> Result<Vec<DB::Row>, GuardError> {
        let mut select = self.select()?;
        if let Some(order) = &self.order {
            select.push(" ORDER BY ").column(order)?;
        }
        select.push(" LIMIT ").bind(&DB::number(i64::from(limit)));
        let rows = self.fetch(select, session.connection(), Lock::SkipLocked, None).await?;
        Ok(rows.unwrap_or_default())
    }

    async fn lock(
        &self,
        connection: &mut DB::Connection,
        count: usize,
    ) -> Result<Locked<Vec<DB::Row>>, GuardError> {
        let patience = match self.wait {
            Wait::AtMost(patience) => Some(patience),
            Wait::AsTheServer => None,
        };
        let at_once = patience.is_some_and(|patience| patience.is_zero());
        // What is free is had in one round trip. Several are not locked in passing, out of their order, before waiting.
        let is_tried = if at_once { DB::SECOND_LOOK } else { patience.is_some() && count == 1 };
        if DB::ROW_LOCKS && is_tried {
            let found = self.fetch(self.ordered()?, connection, Lock::SkipLocked, None).await?;
            match found {
                Some(rows) if rows.len() >= count => return Ok(Locked::Held(rows)),
                _ if DB::SECOND_LOOK && self.existing(connection).await? < count => {
                    return Ok(Locked::Missing);
                }
                _ if at_once => return Ok(Locked::Busy),
                _ => {}
            }
        }
        Ok(match self.fetch(self.ordered()?, connection, Lock::Wait, patience).await? {
            Some(rows) if rows.len() >= count => Locked::Held(rows),
            Some(_) => Locked::Missing,
            None => Locked::Busy,
        })
    }

    fn select(&self) -> Result<Statement<'a, DB>, GuardError> {
        let mut select = Statement::new(GUARD, "SELECT * FROM ");
        select.table(&self.table)?.push(" WHERE 1 = 1");
        self.conditions(&mut select)?;
        Ok(select)
    }

    fn ordered(&self) -> Result<Statement<'a, DB>, GuardError> {
        let mut select = self.select()?;
        if let Some((column, _)) = &self.many {
            select.push(" ORDER BY ").column(column)?;
        }
        Ok(select)
    }

    fn conditions(&self, statement: &mut Statement<'a, DB>) -> Result<(), GuardError> {
        if !self.key.is_empty() {
            statement.push(" AND ").all_equal(&self.key)?;
        }
        if let Some((column, values)) = &self.many {
            statement.push(" AND ").column(column)?.push(" IN (");
            for (place, value) in values.iter().enumerate() {
                statement.push(if place == 0 { "" } else { ", " }).bind(value);
            }
            statement.push(")");
        }
        Ok(())
    }

    async fn fetch(
        &self,
        select: Statement<'a, DB>,
        connection: &mut DB::Connection,
        how: Lock,
        patience: Option<Duration>,
    ) -> Result<Option<Vec<DB::Row>>, GuardError> {
        let (sql, arguments) = select.finish().map_err(failed::<DB>(GUARD))?;
        DB::lock(connection, &self.table, sql, arguments, how, patience).await.map_err(failed::<DB>(GUARD))
    }

    /// How many of them there are, locked or not.
    async fn existing(&self, connection: &mut DB::Connection) -> Result<usize, GuardError> {
        let mut select = Statement::new(GUARD, "SELECT count(*) FROM ");
        select.table(&self.table)?.push(" WHERE 1 = 1");
        self.conditions(&mut select)?;
        let rows = select.fetch(connection).await?;
        let count = rows.first().map_or(Ok(0), |row| integer::<DB>(GUARD, row, 0, "a count"))?;
        Ok(usize::try_from(count).unwrap_or_default())
    }
}

impl<DB: Database> fmt::Debug for RowLock<'_, DB> {
    // The key may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowLock")
            .field("table", &self.table)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
