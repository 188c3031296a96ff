//! What an update does to a row, and on which condition.

use std::fmt;

use sqlx::Database;

use super::dialect::{Dialect, Speak};
use super::error::GuardError;
use super::statement::{Bindable, Pair, Statement, distinct};

/// What an update does to a row: values that are set, amounts that are added, and what has to hold before.
///
/// ```
/// use onlyonce_sql::guard::Change;
/// # #[cfg(feature = "sqlite")] {
/// let take_two = Change::<sqlx::Sqlite>::new().add("count", -2).at_least("count", 2);
/// # let _ = take_two; }
/// ```
pub struct Change<'a, DB: Database> {
    set: Vec<Pair<'a, DB>>,
    add: Vec<Pair<'a, DB>>,
    at_least: Vec<Pair<'a, DB>>,
}

impl<'a, DB: Dialect> Change<'a, DB> {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { set: Vec::new(), add: Vec::new(), at_least: Vec::new() }
    }

    /// The column gets this value.
    #[must_use]
    pub fn set(mut self, column: impl Into<String>, value: impl Bindable<'a, DB>) -> Self {
        self.set.push(Pair::new(column, value));
        self
    }

    /// This amount is added to the column; a negative one is taken away.
    #[must_use]
    pub fn add(mut self, column: impl Into<String>, amount: impl Bindable<'a, DB>) -> Self {
        self.add.push(Pair::new(column, amount));
        self
    }

    /// Only if the column has at least this value before the change.
    #[must_use]
    pub fn at_least(mut self, column: impl Into<String>, value: impl Bindable<'a, DB>) -> Self {
        self.at_least.push(Pair::new(column, value));
        self
    }
}

impl<'a, DB: Speak> Change<'a, DB> {
    /// Whether it means the same whatever the row was before: nothing is set that may come from an older row.
    pub(super) fn is_relative(&self) -> bool {
        self.set.is_empty()
    }

    pub(super) fn is_conditional(&self) -> bool {
        !self.at_least.is_empty()
    }

    /// Each column is changed once, and `own`, which the guard itself changes, not at all.
    pub(super) fn check(&self, guard: &'static str, own: &str) -> Result<(), GuardError> {
        let changed = || self.set.iter().chain(&self.add).map(|pair| pair.column.as_str());
        if changed().any(|column| column.eq_ignore_ascii_case(own)) {
            let says =
                format!("the column `{own}` is changed by the guard itself; leave it out of the change");
            return Err(GuardError::input(guard, says));
        }
        distinct(guard, changed())
    }

    /// `column = …, …`, each with a comma after it.
    pub(super) fn assignments(&self, statement: &mut Statement<'a, DB>) -> Result<(), GuardError> {
        for pair in &self.set {
            statement.column(&pair.column)?.push(" = ").bind(&pair.value).push(", ");
        }
        for pair in &self.add {
            statement.column(&pair.column)?.push(" = ").column(&pair.column)?.push(" + ").bind(&pair.value);
            statement.push(", ");
        }
        Ok(())
    }

    /// ` AND column >= …`.
    pub(super) fn conditions(&self, statement: &mut Statement<'a, DB>) -> Result<(), GuardError> {
        for pair in &self.at_least {
            statement.push(" AND ").column(&pair.column)?.push(" >= ").bind(&pair.value);
        }
        Ok(())
    }
}

impl<DB: Dialect> Default for Change<'_, DB> {
    fn default() -> Self {
        Self::new()
    }
}

impl<DB: Database> fmt::Debug for Change<'_, DB> {
    // Values may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |pairs: &[Pair<'_, DB>]| pairs.iter().map(|pair| pair.column.clone()).collect::<Vec<_>>();
        f.debug_struct("Change")
            .field("set", &names(&self.set))
            .field("add", &names(&self.add))
            .field("at_least", &names(&self.at_least))
            .finish()
    }
}
