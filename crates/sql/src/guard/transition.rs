//! Moving a row along a state machine.

use std::fmt;

use onlyonce_core::{StateMachine, Stored};
use sqlx::Database;

use super::change::Change;
use super::dialect::Dialect;
use super::error::GuardError;
use super::operation::{Once, OperationId, not_written, once, too_many};
use super::session::Session;
use super::statement::{Bindable, Pair, Statement, Value, failed, integer, is_null};

const GUARD: &str = "transition";
/// How often a row is looked at that others move between the look and the move.
const TRIES: usize = 5;

/// What became of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition<M> {
    /// The row is in the target now, and this call moved it.
    Applied,
    /// The row was in the target: most likely a duplicate. Nothing was changed.
    AlreadyInTarget,
    /// This operation was done before, wherever the row is now. Nothing was changed.
    Duplicate(OperationId),
    /// The machine has no such move.
    Illegal {
        /// The state of the row, which is locked until the transaction ends.
        from: M,
        /// The target.
        to: M,
    },
    /// There is no such row.
    NotFound,
}

/// A move; see [`transition`].
#[must_use = "nothing is moved before `run`"]
pub struct StateChange<'a, DB: Database, M> {
    table: String,
    column: String,
    to: M,
    key: Vec<Pair<'a, DB>>,
    change: Change<'a, DB>,
    operation: Option<OperationId>,
}

/// Moves a row to the state `to`, in one `UPDATE … WHERE status IN (the states that may become it)`: of many that try at once,
/// one moves it.
///
/// Where the states go in a circle, a late duplicate of an old move may be legal again: give such moves an
/// [`operation`](StateChange::operation) (see [`StateMachine::has_cycle`]). With one the happy path is one round trip on
/// PostgreSQL and two on MySQL.
///
/// ```
/// # use onlyonce_sql::guard::*;
/// # use onlyonce_core::{StateMachine, Stored};
/// // With the feature `macros` of `onlyonce` this is derived: #[derive(StateMachine)]
/// # #[derive(Debug, Clone, Copy, PartialEq, Eq)]
/// # enum Order { Placed, Paid }
/// # impl StateMachine for Order {
/// #     const NAME: &'static str = "Order";
/// #     const STATES: &'static [Self] = &[Self::Placed, Self::Paid];
/// #     fn targets(self) -> &'static [Self] { match self { Self::Placed => &[Self::Paid], Self::Paid => &[] } }
/// #     fn name(self) -> &'static str { match self { Self::Placed => "Placed", Self::Paid => "Paid" } }
/// #     fn stored(self) -> Stored { Stored::Text(match self { Self::Placed => "placed", Self::Paid => "paid" }) }
/// # }
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
/// # sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT)").execute(&pool).await?;
/// # sqlx::query("INSERT INTO orders VALUES (123, 'placed')").execute(&pool).await?;
/// let mut tx = pool.begin().await?;
/// for expected in [Transition::Applied, Transition::AlreadyInTarget] {
///     let moved = transition("orders", "status", Order::Paid).key("id", 123).run(&mut tx).await?;
///     assert_eq!(moved, expected);
/// }
/// let back = transition("orders", "status", Order::Placed).key("id", 123).run(&mut tx).await?;
/// assert_eq!(back, Transition::Illegal { from: Order::Paid, to: Order::Placed });
/// # Ok(()) }
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// ```
pub fn transition<'a, DB: Dialect, M: StateMachine>(
    table: impl Into<String>,
    column: impl Into<String>,
    to: M,
) -> StateChange<'a, DB, M> {
    StateChange {
        table: table.into(),
        column: column.into(),
        to,
        key: Vec::new(),
        change: Change::new(),
        operation: None,
    }
}

impl<'a, DB: Dialect, M: StateMachine> StateChange<'a, DB, M> {
    /// The key of the row; once for every column of it.
    pub fn key(mut self, column: impl Into<String>, value: impl Bindable<'a, DB>) -> Self {
        self.key.push(Pair::new(column, value));
        self
    }

    /// Sets another column with the move.
    pub fn set(mut self, column: impl Into<String>, value: impl Bindable<'a, DB>) -> Self {
        self.change = self.change.set(column, value);
        self
    }

    /// Makes this an operation that is done at most once.
    pub fn operation(mut self, operation: OperationId) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Moves the row.
    ///
    /// # Errors
    /// If the call is incomplete or changes a column twice, a statement fails, the key is that of several rows, or the row is in a
    /// state that the machine does not have.
    pub async fn run<S: Session<Database = DB>>(
        mut self,
        session: &mut S,
    ) -> Result<Transition<M>, GuardError> {
        if self.key.is_empty() {
            return Err(GuardError::input(GUARD, "which row? say `.key(column, value)`"));
        }
        self.change.check(GUARD, &self.column)?;
        let sources: Vec<M> =
            M::STATES.iter().copied().filter(|state| state.targets().contains(&self.to)).collect();
        let connection = session.connection();
        let write = |statement: &mut Statement<'a, DB>| self.write(statement, &sources);
        match once(GUARD, connection, self.operation.as_ref(), write).await? {
            Once::Duplicate => {
                return Ok(self.operation.take().map_or(Transition::AlreadyInTarget, Transition::Duplicate));
            }
            Once::Touched => return Ok(Transition::Applied),
            Once::Untouched => {}
        }
        let outcome = self.look_and_move(connection, &sources).await?;
        // An operation that did nothing is not recorded, else its retry would be taken for a duplicate.
        if let (Some(operation), false) = (&self.operation, matches!(outcome, Some(Transition::Applied))) {
            operation.erase::<DB>(GUARD, connection).await?;
        }
        outcome.ok_or_else(|| not_written(GUARD))
    }

    /// Moves a row that was in no state to be moved from, but may have come to one since; in a transaction the look locks it. `None` if it
    /// does not move.
    async fn look_and_move(
        &self,
        connection: &mut DB::Connection,
        sources: &[M],
    ) -> Result<Option<Transition<M>>, GuardError> {
        for _ in 0..TRIES {
            match self.current(connection).await? {
                None => return Ok(Some(Transition::NotFound)),
                Some(state) if state == self.to => return Ok(Some(Transition::AlreadyInTarget)),
                Some(state) if !sources.contains(&state) => {
                    return Ok(Some(Transition::Illegal { from: state, to: self.to }));
                }
                Some(_) => {}
            }
            let mut statement = Statement::new(GUARD, "");
            self.write(&mut statement, sources)?;
            match statement.execute(connection).await? {
                // Moved by somebody else between the two, outside of a transaction; or a trigger keeps it where it is.
                0 => {}
                1 => return Ok(Some(Transition::Applied)),
                rows => return Err(too_many(GUARD, rows)),
            }
        }
        Ok(None)
    }

    fn write(&self, statement: &mut Statement<'a, DB>, sources: &[M]) -> Result<(), GuardError> {
        statement.push("UPDATE ").table(&self.table)?.push(" SET ");
        self.change.assignments(statement)?;
        statement.column(&self.column)?.push(" = ").bind(&bound::<DB>(self.to.stored()));
        statement.push(" WHERE ").all_equal(&self.key)?.push(" AND ");
        if sources.is_empty() {
            statement.push("1 = 0");
            return Ok(());
        }
        statement.column(&self.column)?.push(" IN (");
        for (place, source) in sources.iter().enumerate() {
            statement.push(if place == 0 { "" } else { ", " }).bind(&bound::<DB>(source.stored()));
        }
        statement.push(")");
        Ok(())
    }

    /// The state that the row is in now, under its lock.
    async fn current(&self, connection: &mut DB::Connection) -> Result<Option<M>, GuardError> {
        let whole = M::STATES.iter().any(|state| matches!(state.stored(), Stored::Integer(_)));
        let mut select = Statement::new(GUARD, "SELECT CAST(");
        select.column(&self.column)?.push(" AS ").push(if whole { DB::INTEGER } else { DB::TEXT });
        select.push(") FROM ").table(&self.table)?.push(" WHERE ").all_equal(&self.key)?.push(DB::FOR_UPDATE);
        let rows = select.fetch(connection).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let what = format!("the state `{}` of the row", self.column);
        let (state, shown) = if whole {
            let found = integer::<DB>(GUARD, row, 0, &what)?;
            (M::STATES.iter().find(|state| state.stored() == Stored::Integer(found)), found.to_string())
        } else {
            let found =
                DB::text(row, 0).map_err(failed::<DB>(GUARD))?.ok_or_else(|| is_null(GUARD, &what))?;
            (
                M::STATES.iter().find(|state| matches!(state.stored(), Stored::Text(text) if text == found)),
                found,
            )
        };
        let unknown = || {
            GuardError::data(GUARD, format!("the row is in state `{shown}`, which {} does not have", M::NAME))
        };
        state.copied().map(Some).ok_or_else(unknown)
    }
}

fn bound<DB: Dialect>(stored: Stored) -> Value<'static, DB> {
    match stored {
        Stored::Text(text) => DB::string(text.to_owned()),
        Stored::Integer(number) => DB::number(number),
    }
}

impl<DB: Database, M: StateMachine> fmt::Debug for StateChange<'_, DB, M> {
    // The key may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateChange")
            .field("table", &self.table)
            .field("to", &self.to)
            .field("operation", &self.operation)
            .finish_non_exhaustive()
    }
}
