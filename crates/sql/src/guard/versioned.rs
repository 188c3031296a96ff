//! The optimistic lock: change or delete the row that was seen, and no later one.

use std::fmt;

use sqlx::Database;

use super::change::Change;
use super::dialect::Dialect;
use super::error::GuardError;
use super::operation::{Once, OperationId, not_written, once, too_many};
use super::session::Session;
use super::statement::{Bindable, Pair, Statement, integer};

const GUARD: &str = "versioned";

/// What became of a versioned change or delete.
#[derive(Debug)]
pub enum Versioned<R> {
    /// It is done. After an update the row is at this version; after a delete this one is gone.
    Applied {
        /// The version.
        version: i64,
    },
    /// This operation was done before; nothing was changed now.
    Duplicate(OperationId),
    /// Somebody else changed the row since it was seen: this is it now, locked until the transaction ends.
    Conflict(R),
    /// The row is as it was seen, but what has to hold ([`at_least`](Change::at_least)) does not.
    Unmet(R),
    /// There is no such row.
    NotFound,
}

type Recompute<'a, DB> = Box<dyn FnOnce(&<DB as Database>::Row) -> Option<Change<'a, DB>> + Send + 'a>;

/// A row at a version; see [`versioned`].
#[must_use = "nothing happens before `update` or `delete`"]
pub struct VersionedRow<'a, DB: Database> {
    row: Row<'a, DB>,
    seen: Option<i64>,
    // Apart from the rest, because a closure that is sent between threads need not be shared by them.
    recompute: Option<Recompute<'a, DB>>,
}

/// Which row it is, and under which operation it is changed.
struct Row<'a, DB: Database> {
    table: String,
    key: Vec<Pair<'a, DB>>,
    column: String,
    operation: Option<OperationId>,
}

/// Changes or deletes a row only if it is still at the version that was seen. The version is a whole number in a column of the
/// row; every update adds one to it.
///
/// Without an operation id a conflict is never retried: a duplicate would read the row again and apply its change twice. With
/// [`operation`](VersionedRow::operation), which is recorded in the same transaction, a duplicate is told as one, and a conflict
/// is retried once, at the version that is there now and under the lock of the row. What is *added* is added to that row; what is
/// *set* came from the row that was seen and needs [`recompute`](VersionedRow::recompute), else the conflict is told.
///
/// With an operation id the happy path is one round trip on PostgreSQL and two on MySQL.
///
/// ```
/// # use onlyonce_sql::guard::*;
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
/// # migrate(&mut pool.acquire().await?).await?;
/// # sqlx::query("CREATE TABLE stock (id INTEGER PRIMARY KEY, count INTEGER, version INTEGER)").execute(&pool).await?;
/// # sqlx::query("INSERT INTO stock VALUES (7, 10, 1)").execute(&pool).await?;
/// let mut tx = pool.begin().await?;
/// let order = OperationId::new("stock.take", "order-42")?;
/// for again in [false, true] {
///     let take = Change::new().add("count", -2).at_least("count", 2);
///     let row = versioned("stock", "version").key("id", 7).seen(1).operation(order.clone());
///     match row.update(&mut tx, take).await? {
///         Versioned::Applied { version } => assert_eq!((version, again), (2, false)),
///         Versioned::Duplicate(_) => assert!(again),
///         other => panic!("{other:?}"),
///     }
/// }
/// tx.commit().await?;
/// # Ok(()) }
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// ```
pub fn versioned<'a, DB: Dialect>(
    table: impl Into<String>,
    version: impl Into<String>,
) -> VersionedRow<'a, DB> {
    let row = Row { table: table.into(), key: Vec::new(), column: version.into(), operation: None };
    VersionedRow { row, seen: None, recompute: None }
}

impl<'a, DB: Dialect> VersionedRow<'a, DB> {
    /// The key of the row; once for every column of it.
    pub fn key(mut self, column: impl Into<String>, value: impl Bindable<'a, DB>) -> Self {
        self.row.key.push(Pair::new(column, value));
        self
    }

    /// The version at which the row was seen.
    pub fn seen(mut self, version: i64) -> Self {
        self.seen = Some(version);
        self
    }

    /// Makes this an operation that is done at most once.
    pub fn operation(mut self, operation: OperationId) -> Self {
        self.row.operation = Some(operation);
        self
    }

    /// After a conflict, makes the change anew from the row that is there now; `None` gives up, and the conflict is told. Needs an
    /// [`operation`](Self::operation).
    pub fn recompute(mut self, from: impl FnOnce(&DB::Row) -> Option<Change<'a, DB>> + Send + 'a) -> Self {
        self.recompute = Some(Box::new(from));
        self
    }

    /// Changes the row.
    ///
    /// # Errors
    /// If the call is incomplete or changes a column twice, if the key is that of several rows, or if a statement fails.
    pub async fn update<S: Session<Database = DB>>(
        self,
        session: &mut S,
        change: Change<'a, DB>,
    ) -> Result<Versioned<DB::Row>, GuardError> {
        let seen = self.check()?;
        let Self { row, recompute, .. } = self;
        change.check(GUARD, &row.column)?;
        if recompute.is_some() && row.operation.is_none() {
            return Err(GuardError::input(
                GUARD,
                "a conflict is retried only under an operation id; give one",
            ));
        }
        let connection = session.connection();
        let write = |statement: &mut Statement<'a, DB>| row.write_update(statement, &change, seen);
        match once(GUARD, connection, row.operation.as_ref(), write).await? {
            Once::Duplicate => return Ok(row.duplicate()),
            Once::Touched => return Ok(Versioned::Applied { version: seen + 1 }),
            Once::Untouched => {}
        }
        let Some((found, version)) = row.current(connection).await? else {
            return row.nothing_done(connection, Versioned::NotFound).await;
        };
        if version == seen && change.is_conditional() {
            return row.nothing_done(connection, Versioned::Unmet(found)).await;
        }
        let again = match (&row.operation, recompute) {
            (None, _) => None,
            (Some(_), Some(recompute)) => recompute(&found),
            (Some(_), None) => change.is_relative().then_some(change),
        };
        let Some(change) = again else {
            return row.nothing_done(connection, Versioned::Conflict(found)).await;
        };
        change.check(GUARD, &row.column)?;
        // In a transaction the row is locked: nobody comes between.
        let mut statement = Statement::new(GUARD, "");
        row.write_update(&mut statement, &change, version)?;
        match statement.execute(connection).await? {
            1 => return Ok(Versioned::Applied { version: version + 1 }),
            0 => {}
            rows => return Err(too_many(GUARD, rows)),
        }
        // Outside of a transaction it may have been changed in between all the same; and a trigger may keep it as it is.
        let outcome = match row.current(connection).await? {
            None => Ok(Versioned::NotFound),
            Some((found, now)) if now != version => Ok(Versioned::Conflict(found)),
            Some((found, _)) if change.is_conditional() => Ok(Versioned::Unmet(found)),
            Some(_) => Err(not_written(GUARD)),
        };
        row.undone(connection).await?;
        outcome
    }

    /// Deletes the row. One that was created again under the same key is not the one that was seen, as long as its version is
    /// another: see [`UniqueInsert::first_version`](super::UniqueInsert::first_version). A conflict is never retried.
    ///
    /// # Errors
    /// If the call is incomplete, if the key is that of several rows, or if a statement fails.
    pub async fn delete<S: Session<Database = DB>>(
        self,
        session: &mut S,
    ) -> Result<Versioned<DB::Row>, GuardError> {
        let seen = self.check()?;
        let row = self.row;
        let connection = session.connection();
        let write = |statement: &mut Statement<'a, DB>| {
            statement.push("DELETE FROM ").table(&row.table)?;
            row.write_where(statement, seen)
        };
        match once(GUARD, connection, row.operation.as_ref(), write).await? {
            Once::Duplicate => return Ok(row.duplicate()),
            Once::Touched => return Ok(Versioned::Applied { version: seen }),
            Once::Untouched => {}
        }
        let outcome = match row.current(connection).await? {
            Some((found, _)) => Versioned::Conflict(found),
            None => Versioned::NotFound,
        };
        row.nothing_done(connection, outcome).await
    }

    fn check(&self) -> Result<i64, GuardError> {
        if self.row.key.is_empty() {
            return Err(GuardError::input(GUARD, "which row? say `.key(column, value)`"));
        }
        self.seen.ok_or_else(|| {
            GuardError::input(GUARD, "at which version was the row seen? say `.seen(version)`")
        })
    }
}

impl<'a, DB: Dialect> Row<'a, DB> {
    fn duplicate(self) -> Versioned<DB::Row> {
        self.operation.map_or(Versioned::NotFound, Versioned::Duplicate)
    }

    /// An operation that did nothing is not recorded, else its retry would be taken for a duplicate.
    async fn nothing_done(
        &self,
        connection: &mut DB::Connection,
        outcome: Versioned<DB::Row>,
    ) -> Result<Versioned<DB::Row>, GuardError> {
        self.undone(connection).await?;
        Ok(outcome)
    }

    async fn undone(&self, connection: &mut DB::Connection) -> Result<(), GuardError> {
        match &self.operation {
            Some(operation) => operation.erase::<DB>(GUARD, connection).await,
            None => Ok(()),
        }
    }

    fn write_update(
        &self,
        statement: &mut Statement<'a, DB>,
        change: &Change<'a, DB>,
        version: i64,
    ) -> Result<(), GuardError> {
        statement.push("UPDATE ").table(&self.table)?.push(" SET ");
        change.assignments(statement)?;
        statement.column(&self.column)?.push(" = ").column(&self.column)?.push(" + 1");
        self.write_where(statement, version)?;
        change.conditions(statement)
    }

    fn write_where(&self, statement: &mut Statement<'a, DB>, version: i64) -> Result<(), GuardError> {
        statement.push(" WHERE ").all_equal(&self.key)?.push(" AND ").column(&self.column)?.push(" = ");
        statement.bind(&DB::number(version));
        Ok(())
    }

    /// The row as it is now, and its version.
    async fn current(&self, connection: &mut DB::Connection) -> Result<Option<(DB::Row, i64)>, GuardError> {
        let mut select = Statement::new(GUARD, "SELECT t.*, CAST(t.");
        select
            .column(&self.column)?
            .push(" AS ")
            .push(DB::INTEGER)
            .push(") AS onlyonce_version FROM ")
            .table(&self.table)?;
        select.push(" AS t WHERE ").all_equal(&self.key)?.push(DB::FOR_UPDATE);
        let rows = select.fetch(connection).await?;
        let Some(row) = rows.into_iter().next() else { return Ok(None) };
        let what = format!("the version `{}` of the row", self.column);
        let version = integer::<DB>(GUARD, &row, DB::width(&row) - 1, &what)?;
        Ok(Some((row, version)))
    }
}

impl<DB: Database> fmt::Debug for VersionedRow<'_, DB> {
    // The key may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionedRow")
            .field("table", &self.row.table)
            .field("seen", &self.seen)
            .field("operation", &self.row.operation)
            .finish_non_exhaustive()
    }
}
