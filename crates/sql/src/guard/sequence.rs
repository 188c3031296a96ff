//! Numbers that a caller counts up by itself.

use std::time::Duration;

use onlyonce_core::{InputError, Key, Operation, RecordId, Scope, SequenceKey};

use super::dialect::Speak;
use super::error::{Fault, GuardError};
use super::operation::OperationId;
use super::schema::SEQUENCE_TABLE;
use super::session::Session;
use super::statement::{Statement, integer};

const GUARD: &str = "sequence";

/// What became of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sequence {
    /// It is new: do what was asked, in the same transaction.
    Accepted,
    /// It was accepted before.
    Duplicate,
    /// In a strictly increasing sequence a higher one was accepted before: too late, or out of order.
    Behind {
        /// The highest that was accepted.
        last: u64,
    },
}

/// A number to be accepted; see [`sequence`].
#[derive(Debug)]
#[must_use = "nothing is accepted before `run`"]
pub struct SequenceEntry {
    key: SequenceKey,
    retain: Option<Duration>,
    increasing: bool,
}

/// Accepts each number of a credential once, in any order; or, [strictly increasing](SequenceEntry::strictly_increasing), only
/// numbers above all that came before.
///
/// In any order a number is remembered for 30 days ([`retain`](SequenceEntry::retain)), a row each. Strictly increasing there is
/// one row a credential, for good.
///
/// ```
/// # use onlyonce_sql::guard::*;
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
/// # migrate(&mut pool.acquire().await?).await?;
/// let mut tx = pool.begin().await?;
/// for (number, expected) in
///     [(5, Sequence::Accepted), (5, Sequence::Duplicate), (4, Sequence::Behind { last: 5 }), (6, Sequence::Accepted)]
/// {
///     let entry = sequence(SequenceKey::new("shop-7", number)?).strictly_increasing();
///     assert_eq!(entry.run(&mut tx).await?, expected);
/// }
/// # Ok(()) }
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// ```
pub fn sequence(key: SequenceKey) -> SequenceEntry {
    SequenceEntry { key, retain: None, increasing: false }
}

impl SequenceEntry {
    /// Accepts only numbers above all that were accepted before.
    pub fn strictly_increasing(mut self) -> Self {
        self.increasing = true;
        self
    }

    /// For how long a number is remembered.
    pub fn retain(mut self, retain: Duration) -> Self {
        self.retain = Some(retain);
        self
    }

    /// Accepts the number, if it is to be.
    ///
    /// # Errors
    /// If a statement fails, or a strictly increasing sequence is told to forget.
    pub async fn run<S: Session>(self, session: &mut S) -> Result<Sequence, GuardError> {
        let numbered = Numbered::new(&self.key)?;
        let connection = session.connection();
        if self.increasing {
            if self.retain.is_some() {
                return Err(GuardError::input(
                    GUARD,
                    "a strictly increasing sequence that forgets would accept old numbers; leave `retain` out",
                ));
            }
            return numbered.rise::<S::Database>(connection).await;
        }
        let mut operation = OperationId::scoped(&numbered.scope, GUARD, &numbered.number.to_string())?;
        if let Some(retain) = self.retain {
            operation = operation.retain(retain);
        }
        let first = operation.record::<S::Database>(GUARD, connection).await?;
        Ok(if first { Sequence::Accepted } else { Sequence::Duplicate })
    }
}

/// The key as a database takes it.
struct Numbered {
    scope: Scope,
    number: i64,
}

impl Numbered {
    fn new(key: &SequenceKey) -> Result<Self, GuardError> {
        let scope = Scope::new(key.credential())?;
        let too_high = || GuardError::input(GUARD, "a sequence number in a database is below 2^63");
        Ok(Self { scope, number: i64::try_from(key.sequence()).map_err(|_| too_high())? })
    }

    /// Raises the row of the credential. Most of the time there is one; so where `ON CONFLICT` is missing it is updated first.
    async fn rise<DB: Speak>(&self, connection: &mut DB::Connection) -> Result<Sequence, GuardError> {
        let accepted = if DB::ON_CONFLICT {
            self.insert::<DB>()?.execute(connection).await? > 0
        } else if self.update::<DB>()?.execute(connection).await? > 0 {
            true
        } else {
            match self.insert::<DB>()?.try_execute(connection).await {
                Ok(_) => true,
                Err(error) => match DB::fault(&error) {
                    // It is there: below, or it came since.
                    Fault::Duplicate(_) => match self.last::<DB>(connection).await? {
                        Some(last) if last < self.number => {
                            self.update::<DB>()?.execute(connection).await? > 0
                        }
                        _ => false,
                    },
                    fault => return Err(GuardError::database(GUARD, fault, error)),
                },
            }
        };
        if accepted {
            return Ok(Sequence::Accepted);
        }
        let last = self.last::<DB>(connection).await?.unwrap_or(self.number);
        Ok(if last == self.number {
            Sequence::Duplicate
        } else {
            Sequence::Behind { last: last.unsigned_abs() }
        })
    }

    fn id<DB: Speak>(&self) -> Result<super::statement::Value<'static, DB>, InputError> {
        let id = RecordId::of(&self.scope, &Operation::new(GUARD)?, &Key::new("last")?);
        Ok(DB::bytes(id.as_bytes().to_vec()))
    }

    fn insert<DB: Speak>(&self) -> Result<Statement<'static, DB>, GuardError> {
        let mut insert = Statement::new(GUARD, "INSERT INTO ");
        insert.table(SEQUENCE_TABLE)?.push(if DB::ON_CONFLICT { " AS s" } else { "" });
        insert.push(" (id, last_number, recorded_at) VALUES (").bind(&self.id::<DB>()?).push(", ");
        insert.bind(&DB::number(self.number)).push(", ").push(DB::NOW).push(")");
        if DB::ON_CONFLICT {
            insert
                .push(" ON CONFLICT (id) DO UPDATE SET last_number = excluded.last_number")
                .push(", recorded_at = excluded.recorded_at WHERE s.last_number < excluded.last_number");
        }
        Ok(insert)
    }

    fn update<DB: Speak>(&self) -> Result<Statement<'static, DB>, GuardError> {
        let number = DB::number(self.number);
        let mut update = Statement::new(GUARD, "UPDATE ");
        update
            .table(SEQUENCE_TABLE)?
            .push(" SET last_number = ")
            .bind(&number)
            .push(", recorded_at = ")
            .push(DB::NOW);
        update.push(" WHERE id = ").bind(&self.id::<DB>()?).push(" AND last_number < ").bind(&number);
        Ok(update)
    }

    async fn last<DB: Speak>(&self, connection: &mut DB::Connection) -> Result<Option<i64>, GuardError> {
        let mut select = Statement::<DB>::new(GUARD, "SELECT last_number FROM ");
        select.table(SEQUENCE_TABLE)?.push(" WHERE id = ").bind(&self.id::<DB>()?).push(DB::LATEST);
        let rows = select.fetch(connection).await?;
        rows.first().map(|row| integer::<DB>(GUARD, row, 0, "the last number")).transpose()
    }
}
