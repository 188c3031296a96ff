//! The name of one operation, recorded in the transaction that it belongs to.

use std::fmt;
use std::time::Duration;

use onlyonce_core::{InputError, Key, Operation, RecordId, Scope};
use sqlx::Error;

use super::dialect::Speak;
use super::error::{Fault, GuardError};
use super::schema::DEDUP_TABLE;
use super::statement::{Statement, failed, integer};

/// Names one operation among all others, so that a duplicate of it is recognised for as long as its row is kept: 30 days,
/// unless [`retain`](Self::retain) says otherwise.
///
/// Only a digest of the key is stored.
///
/// ```
/// use onlyonce_sql::guard::OperationId;
/// let taken = OperationId::new("stock.take", "order-42")?;
/// assert_ne!(taken, OperationId::new("stock.return", "order-42")?);
/// assert!(OperationId::new("stock.take", "").is_err());
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct OperationId {
    name: Box<str>,
    id: RecordId,
    retain: Duration,
    table: Box<str>,
}

/// What is stored of the name, for people.
const LONGEST_NAME: usize = 190;
/// How often a row that comes and goes is tried to be recorded.
const TRIES: usize = 5;

impl OperationId {
    /// The operation `name` under this key, such as an order number or the id of a message.
    ///
    /// # Errors
    /// If the name is empty, longer than 190 bytes or has control characters, or the key is empty or longer than 255 bytes.
    pub fn new(name: &str, key: &str) -> Result<Self, InputError> {
        Self::scoped(&Scope::shared(), name, key)
    }

    /// The same on behalf of somebody: the key of another scope is another operation.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn scoped(scope: &Scope, name: &str, key: &str) -> Result<Self, InputError> {
        if name.len() > LONGEST_NAME {
            return Err(InputError::new(format!(
                "the name of the operation has {} bytes; the limit is {LONGEST_NAME}",
                name.len()
            )));
        }
        if name.chars().any(char::is_control) {
            return Err(InputError::new(format!(
                "the name of the operation, {name:?}, has control characters"
            )));
        }
        let id = RecordId::of(scope, &Operation::new(name)?, &Key::new(key)?);
        let retain = Duration::from_secs(30 * 24 * 60 * 60);
        Ok(Self { name: name.into(), id, retain, table: DEDUP_TABLE.into() })
    }

    /// For how long a duplicate is recognised; not zero. It should outlast the longest time after which one may still come.
    #[must_use]
    pub fn retain(mut self, retain: Duration) -> Self {
        self.retain = retain;
        self
    }

    /// Another table than `onlyonce_dedup`, with the same columns.
    #[must_use]
    pub fn table(mut self, table: &str) -> Self {
        self.table = table.into();
        self
    }

    /// The name of the operation.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The id of its row.
    #[must_use]
    pub fn id(&self) -> &RecordId {
        &self.id
    }

    /// `INSERT …` of the row; where there is `ON CONFLICT` it also takes an expired one, and touches no row of a duplicate.
    fn insert<'a, DB: Speak>(
        &self,
        guard: &'static str,
        statement: &mut Statement<'a, DB>,
    ) -> Result<(), GuardError> {
        if self.retain.is_zero() {
            let says = "`retain` is zero, so that no duplicate would be recognised; give it a time";
            return Err(GuardError::input(guard, says));
        }
        let micros = i64::try_from(self.retain.as_micros()).unwrap_or(i64::MAX / 2).min(i64::MAX / 2);
        statement
            .push("INSERT INTO ")
            .table(&self.table)?
            .push(if DB::ON_CONFLICT { " AS d" } else { "" })
            .push(" (id, operation, recorded_at, expires_at) VALUES (")
            .bind(&DB::bytes(self.id.as_bytes().to_vec()))
            .push(", ")
            .bind(&DB::string(self.name.to_string()))
            .push(", ")
            .push(DB::NOW)
            .push(", ")
            .push(DB::NOW)
            .push(" + ")
            .bind(&DB::number(micros))
            .push(")");
        if DB::ON_CONFLICT {
            statement
                .push(" ON CONFLICT (id) DO UPDATE SET operation = excluded.operation")
                .push(", recorded_at = excluded.recorded_at, expires_at = excluded.expires_at")
                .push(" WHERE d.expires_at <= excluded.recorded_at");
        }
        Ok(())
    }

    /// Records the operation; `false` if it was there.
    pub(super) async fn record<DB: Speak>(
        &self,
        guard: &'static str,
        connection: &mut DB::Connection,
    ) -> Result<bool, GuardError> {
        for _ in 0..TRIES {
            let mut insert = Statement::<DB>::new(guard, "");
            self.insert(guard, &mut insert)?;
            let error = match insert.try_execute(connection).await {
                Ok(rows) => return Ok(rows > 0),
                Err(error) => error,
            };
            match (DB::ON_CONFLICT, DB::fault(&error)) {
                (false, Fault::Duplicate(_)) => {
                    if let Some(first) = self.revive::<DB>(guard, connection).await? {
                        return Ok(first);
                    }
                    // Outside of a transaction a row may be swept, or taken back, between the two: then it was nobody's.
                }
                (_, fault) => return Err(GuardError::database(guard, fault, error)),
            }
        }
        Err(GuardError::data(
            guard,
            format!("the row of the operation came and went {TRIES} times; try again"),
        ))
    }

    /// Takes an expired row; `false` if it is not, and `None` if there is none any more. It is looked at first: a duplicate shares the lock of its row with other duplicates, and to write
    /// at once would let them wait for each other.
    async fn revive<DB: Speak>(
        &self,
        guard: &'static str,
        connection: &mut DB::Connection,
    ) -> Result<Option<bool>, GuardError> {
        let id = DB::bytes(self.id.as_bytes().to_vec());
        let mut look = Statement::<DB>::new(guard, "SELECT CAST(expires_at <= ");
        look.push(DB::NOW).push(" AS ").push(DB::INTEGER).push(") FROM ").table(&self.table)?;
        look.push(" WHERE id = ").bind(&id).push(DB::LATEST);
        let expired = match look.fetch(connection).await?.first() {
            Some(row) => integer::<DB>(guard, row, 0, "the expiry of an operation")? != 0,
            None => return Ok(None),
        };
        if !expired {
            return Ok(Some(false));
        }
        let micros = i64::try_from(self.retain.as_micros()).unwrap_or(i64::MAX / 2).min(i64::MAX / 2);
        let mut take = Statement::<DB>::new(guard, "UPDATE ");
        take.table(&self.table)?;
        take.push(" SET recorded_at = ").push(DB::NOW).push(", expires_at = ").push(DB::NOW).push(" + ");
        take.bind(&DB::number(micros));
        take.push(" WHERE id = ").bind(&id).push(" AND expires_at <= ").push(DB::NOW);
        Ok(Some(take.execute(connection).await? > 0))
    }

    /// Takes the record back: nothing was done under it.
    pub(super) async fn erase<DB: Speak>(
        &self,
        guard: &'static str,
        connection: &mut DB::Connection,
    ) -> Result<(), GuardError> {
        let mut delete = Statement::<DB>::new(guard, "DELETE FROM ");
        delete.table(&self.table)?.push(" WHERE id = ").bind(&DB::bytes(self.id.as_bytes().to_vec()));
        delete.execute(connection).await.map(drop)
    }
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperationId({} {})", self.name, self.id)
    }
}

/// What became of a statement that is run at most once for its operation.
pub(super) enum Once {
    Duplicate,
    Untouched,
    Touched,
}

/// Records the operation, if there is one, and runs the statement if it is the first: together where the database can.
///
/// `write` puts down an `UPDATE` or `DELETE` of one row that ends in its `WHERE`.
pub(super) async fn once<'a, DB: Speak>(
    guard: &'static str,
    connection: &mut DB::Connection,
    operation: Option<&OperationId>,
    write: impl Fn(&mut Statement<'a, DB>) -> Result<(), GuardError>,
) -> Result<Once, GuardError> {
    let mut statement = Statement::new(guard, "");
    let touched = match operation {
        Some(operation) if DB::WRITES_IN_WITH => {
            statement.push("WITH operation AS (");
            operation.insert(guard, &mut statement)?;
            statement.push(" RETURNING 1), change AS (");
            write(&mut statement)?;
            statement.push(" AND EXISTS (SELECT 1 FROM operation) RETURNING 1) ");
            statement.push("SELECT (SELECT count(*) FROM operation), (SELECT count(*) FROM change)");
            let rows = statement.fetch(connection).await?;
            let row = rows.first().ok_or_else(|| failed::<DB>(guard)(Error::RowNotFound))?;
            if integer::<DB>(guard, row, 0, "a count")? == 0 {
                return Ok(Once::Duplicate);
            }
            integer::<DB>(guard, row, 1, "a count")?.unsigned_abs()
        }
        Some(operation) if !operation.record::<DB>(guard, connection).await? => return Ok(Once::Duplicate),
        _ => {
            write(&mut statement)?;
            statement.execute(connection).await?
        }
    };
    match touched {
        0 => Ok(Once::Untouched),
        1 => Ok(Once::Touched),
        rows => Err(too_many(guard, rows)),
    }
}

/// A row that is as it has to be, and does not change.
pub(super) fn not_written(guard: &'static str) -> GuardError {
    let says = "the row could be changed by all that is known of it, and was not: others move it (use a transaction), or a trigger or \
                rule of the database keeps it; nothing was done";
    GuardError::data(guard, says)
}

/// A key that is not one: what was done to one row was done to several.
pub(super) fn too_many(guard: &'static str, rows: u64) -> GuardError {
    let says = format!(
        "{rows} rows have this key, and all of them were changed: roll back, and name all columns of a unique key"
    );
    GuardError::data(guard, says)
}
