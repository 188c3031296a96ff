//! A row that may exist only once.

use sqlx::{Database, Error};

use super::dialect::Dialect;
use super::error::{Fault, GuardError};
use super::session::Session;
use super::statement::{Bindable, Pair, Statement, distinct, failed};

const GUARD: &str = "unique";

/// How often a row that came and went is tried again.
const TRIES: u32 = 5;

/// What became of the insert.
#[derive(Debug)]
pub enum Unique<R> {
    /// The row is there, and this call put it there.
    Inserted,
    /// A row with the same values in the columns of the constraint was there: this one.
    AlreadyThere(R),
}

/// An insert; see [`unique`].
#[must_use = "nothing is inserted before `run`"]
pub struct UniqueInsert<'a, DB: Database> {
    table: String,
    values: Vec<Pair<'a, DB>>,
    version: Option<String>,
    constraint: Option<(String, Vec<String>)>,
}

/// Inserts a row, or says which one was there: one with the same values in the columns of the constraint that is named. The
/// violation of any other constraint stays an error.
///
/// The unique index decides, in one statement: whoever asks first and inserts then loses to whoever does so at the same time.
///
/// ```
/// # use onlyonce_sql::guard::*;
/// # use sqlx::Row;
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
/// # sqlx::query("CREATE TABLE orders (code TEXT NOT NULL, amount INTEGER, CONSTRAINT un_code UNIQUE (code))").execute(&pool).await?;
/// let mut tx = pool.begin().await?;
/// for amount in [100, 999] {
///     let order = unique("orders").set("code", "A-1").set("amount", amount).constraint("un_code", ["code"]);
///     if let Unique::AlreadyThere(row) = order.run(&mut tx).await? {
///         assert_eq!(row.get::<i64, _>("amount"), 100);
///     }
/// }
/// tx.commit().await?;
/// # Ok(()) }
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// ```
pub fn unique<'a, DB: Dialect>(table: impl Into<String>) -> UniqueInsert<'a, DB> {
    UniqueInsert { table: table.into(), values: Vec::new(), version: None, constraint: None }
}

impl<'a, DB: Dialect> UniqueInsert<'a, DB> {
    /// A column and its value.
    pub fn set(mut self, column: impl Into<String>, value: impl Bindable<'a, DB>) -> Self {
        self.values.push(Pair::new(column, value));
        self
    }

    /// Starts the version in this column (`BIGINT`) at the database's time in microseconds, so that a row that is created again
    /// under the same key never has a version that an older one had: an old [`versioned`](super::versioned) change or delete
    /// then finds a conflict. It rests on a clock that does not fall behind an earlier version.
    pub fn first_version(mut self, column: impl Into<String>) -> Self {
        self.version = Some(column.into());
        self
    }

    /// The constraint that makes a row a duplicate: its name (MySQL tells violations by it; the primary key is `PRIMARY` there,
    /// see [`primary_key`](Self::primary_key)) and its columns, which all have to be set.
    pub fn constraint<C: Into<String>>(
        mut self,
        name: impl Into<String>,
        columns: impl IntoIterator<Item = C>,
    ) -> Self {
        self.constraint = Some((name.into(), columns.into_iter().map(Into::into).collect()));
        self
    }

    /// The primary key makes a row a duplicate, whatever the database calls it.
    pub fn primary_key<C: Into<String>>(self, columns: impl IntoIterator<Item = C>) -> Self {
        self.constraint("PRIMARY", columns)
    }

    /// Inserts the row.
    ///
    /// # Errors
    /// If another constraint is violated, or the statement fails.
    pub async fn run<S: Session<Database = DB>>(
        self,
        session: &mut S,
    ) -> Result<Unique<DB::Row>, GuardError> {
        let (name, key) = self.key()?;
        let columns = self.values.iter().map(|pair| pair.column.as_str()).chain(self.version.as_deref());
        distinct(GUARD, columns)?;
        let connection = session.connection();
        for _ in 0..TRIES {
            let another = match self.insert(&key)?.try_execute(connection).await {
                Ok(0) => None,
                Ok(_) => return Ok(Unique::Inserted),
                Err(error) => self.judge(connection, (name, &key), error).await?,
            };
            let mut select = Statement::new(GUARD, "SELECT * FROM ");
            select.table(&self.table)?.push(" WHERE ").all_equal(&key)?.push(DB::LATEST);
            if let Some(row) = select.fetch(connection).await?.into_iter().next() {
                return Ok(Unique::AlreadyThere(row));
            }
            if let Some(error) = another {
                return Err(failed::<DB>(GUARD)(error));
            }
            // It was deleted, or its transaction rolled back, between the two.
        }
        Err(GuardError::data(
            GUARD,
            format!("a row of `{}` came and went {TRIES} times; try again", self.table),
        ))
    }

    /// Whether there may be such a row. A retry of the same row violates all its keys, and the server names but one; so the row is
    /// looked for whichever that is, once its columns are known to be unique. If it is not there, the error tells of another one.
    async fn judge(
        &self,
        connection: &mut DB::Connection,
        (name, key): (&str, &[Pair<'a, DB>]),
        error: Error,
    ) -> Result<Option<Error>, GuardError> {
        let violated = match DB::fault(&error) {
            Fault::Duplicate(violated) if !DB::ON_CONFLICT => violated,
            fault => return Err(GuardError::database(GUARD, fault, error)),
        };
        let is_named = violated.is_some_and(|violated| violated.eq_ignore_ascii_case(name));
        let columns = DB::unique_columns(connection, &self.table, name).await.map_err(failed::<DB>(GUARD))?;
        match columns {
            Some(columns) if !are_those_of(&columns, key) => {
                Err(GuardError::database(GUARD, Fault::NoSuchConstraint, error))
            }
            None if !is_named => Err(failed::<DB>(GUARD)(error)),
            _ => Ok((!is_named).then_some(error)),
        }
    }

    /// The constraint's name, and its columns with their values.
    fn key(&self) -> Result<(&str, Vec<Pair<'a, DB>>), GuardError> {
        let Some((name, columns)) = &self.constraint else {
            return Err(GuardError::input(
                GUARD,
                "no constraint is named; say `.constraint(name, columns)` or `.primary_key(columns)`",
            ));
        };
        let pair = |column: &String| {
            let found = self.values.iter().find(|pair| pair.column == *column).cloned();
            found.ok_or_else(|| {
                GuardError::input(GUARD, format!("the column `{column}` of `{name}` has no value; set it"))
            })
        };
        let key = columns.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
        if key.is_empty() {
            return Err(GuardError::input(GUARD, format!("the constraint `{name}` has no columns")));
        }
        Ok((name, key))
    }

    fn insert(&self, key: &[Pair<'a, DB>]) -> Result<Statement<'a, DB>, GuardError> {
        let mut insert = Statement::new(GUARD, "INSERT INTO ");
        insert.table(&self.table)?.push(" (");
        for (place, pair) in self.values.iter().enumerate() {
            insert.push(if place == 0 { "" } else { ", " }).column(&pair.column)?;
        }
        if let Some(version) = &self.version {
            insert.push(", ").column(version)?;
        }
        insert.push(") VALUES (");
        for (place, pair) in self.values.iter().enumerate() {
            insert.push(if place == 0 { "" } else { ", " }).bind(&pair.value);
        }
        if self.version.is_some() {
            insert.push(", ");
            match DB::fine_now() {
                Some(now) => insert.bind(&DB::number(now)),
                None => insert.push(DB::NOW),
            };
        }
        insert.push(")");
        if DB::ON_CONFLICT {
            insert.push(" ON CONFLICT (");
            for (place, pair) in key.iter().enumerate() {
                insert.push(if place == 0 { "" } else { ", " }).column(&pair.column)?;
            }
            insert.push(") DO NOTHING");
        }
        Ok(insert)
    }
}

fn are_those_of<DB: Database>(columns: &[String], key: &[Pair<'_, DB>]) -> bool {
    let has = |name: &String| key.iter().any(|pair| pair.column.eq_ignore_ascii_case(name));
    columns.len() == key.len() && columns.iter().all(has)
}

impl<DB: Database> std::fmt::Debug for UniqueInsert<'_, DB> {
    // Values may be personal data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UniqueInsert").field("table", &self.table).finish_non_exhaustive()
    }
}
