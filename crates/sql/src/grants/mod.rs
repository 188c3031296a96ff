//! Worker numbers of [Snowflake ids](onlyonce_id::Snowflake), leased from your own database.
//!
//! A grant is read, chosen and then written by one statement that changes the row only if it is still as it was read. No
//! transaction and no lock outlives a statement, so a process that dies anywhere in between holds up nobody.

mod choice;

use std::convert::identity;
use std::fmt;

use async_trait::async_trait;
use onlyonce_core::InputError;
use onlyonce_id::{Grant, GrantError, Grants, Holder, Request};
use sqlx::Pool;

use self::choice::{Choice, Row, choose};
use crate::builder::connect;
use crate::dialect::{Database, Dialect, Meaning};
use crate::late::{self, PATIENCE};
use crate::migrate::is_made;
use crate::open_error::OpenError;
use crate::pooled::answered;
use crate::statements::safe;
use crate::table::Table;
use crate::value::{Value, fill};

/// How often a choice is made anew because somebody else was faster.
const TRIES: u32 = 50;
/// Whose window was given back.
const NOBODY: [u8; 16] = [0; 16];
/// The longest name of a group, in bytes.
const LONGEST_GROUP: usize = 255;
/// The clock of SQLite, in the milliseconds that it has: enough for grants.
const COARSE: &str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";

/// Grants kept in the table `onlyonce_workers` of your own database, judged by its clock alone. Cheap to clone.
///
/// Rows are kept for good, one for each worker number that was ever in use. As long as the database keeps them, no window is
/// granted twice; a failover to a replica that lacks the last commits may forget one.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn open(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use onlyonce_id::{Layout, Snowflake};
/// use onlyonce_sql::SqlGrants;
/// let grants = SqlGrants::on(pool, "shop")?;
/// grants.migrate().await?;
/// let ids = Snowflake::open(Layout::STANDARD, grants).await?;
/// # Ok(()) }
/// ```
pub struct SqlGrants<DB: Database> {
    pool: Pool<DB>,
    table: Table,
    group: String,
}

impl<DB: Database> Clone for SqlGrants<DB> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), table: self.table.clone(), group: self.group.clone() }
    }
}

impl<DB: Database> fmt::Debug for SqlGrants<DB> {
    // Without the pool: its options hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SqlGrants");
        shown.field("database", &DB::WORD).field("table", &self.table.name()).field("group", &self.group);
        shown.finish_non_exhaustive()
    }
}

impl<DB: Database> SqlGrants<DB> {
    /// Grants in the database of this pool, for all generators that name the same `group`. Different layouts need different
    /// groups. The table must be there: see [`migrate`](Self::migrate).
    ///
    /// # Errors
    /// If the name of the group is empty or longer than 255 bytes.
    pub fn on(pool: Pool<DB>, group: &str) -> Result<Self, InputError> {
        if group.is_empty() || group.len() > LONGEST_GROUP {
            let bytes = group.len();
            return Err(InputError::new(format!(
                "the name of the group of workers has {bytes} bytes; give it 1 to {LONGEST_GROUP}"
            )));
        }
        Ok(Self { pool, table: Table::workers(), group: group.to_owned() })
    }

    /// The same with a pool of its own, of two connections at most.
    ///
    /// # Errors
    /// If the URL or the group can't be used, or the database is not reached.
    pub async fn open(url: &str, group: &str) -> Result<Self, OpenError> {
        Self::on(connect::<DB>(url, 2).await?, group).map_err(OpenError::Name)
    }

    /// In another table than `onlyonce_workers`.
    ///
    /// # Errors
    /// If the name can't be used.
    pub fn table(mut self, name: &str) -> Result<Self, InputError> {
        self.table = Table::new(None, name)?;
        Ok(self)
    }

    /// Creates the table where it is missing; safe to run at every start, by many at once. The same SQL is shipped as
    /// `migrations/*/workers.sql`.
    ///
    /// # Errors
    /// If the user may not create tables, or the database fails.
    pub async fn migrate(&self) -> Result<(), GrantError> {
        let file = schema::<DB>().replace("onlyonce_workers", self.table.name());
        let make = async |connection: &mut DB::Connection| {
            if is_made::<DB>(connection, &file).await? {
                return Ok(());
            }
            let sql = safe(file);
            match DB::raw(connection, sql.clone()).await {
                Ok(_) => Ok(()),
                // Two that start together may both find it missing.
                Err(_) => DB::raw(connection, sql).await.map(drop),
            }
        };
        answered(&self.pool, late::migration(PATIENCE), identity, make).await.map_err(failed::<DB>)
    }

    fn sql(&self, template: &str) -> sqlx::SqlStr {
        let template = template.replace("{table}", &self.table.to_string());
        let template = template.replace("{now}", DB::NOW.unwrap_or(COARSE));
        safe(fill(&template, |sql, place| DB::place(sql, place + 1)))
    }

    fn group(&self) -> Value {
        Value::bytes(self.group.as_bytes())
    }

    /// The time by the database's clock, and every number that was ever granted.
    async fn read(&self, connection: &mut DB::Connection) -> Result<(i64, Vec<Row>), sqlx::Error> {
        // From a row of its own, so that the time is told also when there is no number yet.
        let sql = self.sql(
            "SELECT {now}, COALESCE(w.worker, -1), w.holder, COALESCE(w.granted_from, 0), COALESCE(w.granted_until, 0) \
             FROM (SELECT 1 AS one) AS o LEFT JOIN {table} AS w ON w.worker_group = $1",
        );
        let rows = DB::rows(connection, sql, vec![self.group()]).await?;
        let Some(first) = rows.first() else { return Err(sqlx::Error::RowNotFound) };
        let now = DB::int(first, 0)? / 1000;
        let rows: Vec<Row> = rows.iter().map(row::<DB>).collect::<Result<_, _>>()?;
        Ok((now, rows.into_iter().filter(|row| row.worker >= 0).collect()))
    }

    /// Writes a choice, unless somebody else was faster.
    async fn write(&self, connection: &mut DB::Connection, choice: &Choice) -> Result<bool, sqlx::Error> {
        let to = choice.to();
        let holder = Value::bytes(&to.holder);
        let (template, arguments) = match choice {
            Choice::New(_) => (
                "INSERT INTO {table} (holder, granted_from, granted_until, worker_group, worker) \
                 VALUES ($1, $2, $3, $4, $5)",
                vec![holder, Value::Int(to.from), Value::Int(to.until), self.group(), Value::Int(to.worker)],
            ),
            Choice::Change { seen, .. } => (
                "UPDATE {table} SET holder = $1, granted_from = $2, granted_until = $3 \
                 WHERE worker_group = $4 AND worker = $5 AND holder = $6 AND granted_until = $7",
                vec![
                    holder,
                    Value::Int(to.from),
                    Value::Int(to.until),
                    self.group(),
                    Value::Int(to.worker),
                    Value::bytes(&seen.holder),
                    Value::Int(seen.until),
                ],
            ),
        };
        match DB::run(connection, self.sql(template), arguments).await {
            Ok(done) => Ok(done.rows == 1),
            Err(error) => match DB::meaning(&error) {
                Meaning::Duplicate | Meaning::GaveWay => Ok(false),
                _ => Err(error),
            },
        }
    }
}

fn row<DB: Dialect>(row: &DB::Row) -> Result<Row, sqlx::Error> {
    let holder = DB::bytes(row, 2)?.and_then(|bytes| bytes.try_into().ok()).unwrap_or(NOBODY);
    Ok(Row { worker: DB::int(row, 1)?, holder, from: DB::int(row, 3)?, until: DB::int(row, 4)? })
}

/// The SQL of the table, as it is shipped.
fn schema<DB: Database>() -> &'static str {
    match DB::WORD {
        "postgres" => include_str!("../../migrations/postgres/workers.sql"),
        "mysql" => include_str!("../../migrations/mysql/workers.sql"),
        _ => include_str!("../../migrations/sqlite/workers.sql"),
    }
}

fn failed<DB: Dialect>(cause: sqlx::Error) -> GrantError {
    match DB::meaning(&cause) {
        Meaning::NoTable => GrantError::unavailable(InputError::new(format!(
            "the table of the worker numbers is not there: call SqlGrants::migrate, or apply migrations/{}/workers.sql",
            DB::WORD
        ))),
        _ => GrantError::unavailable(cause),
    }
}

#[async_trait]
impl<DB: Database> Grants for SqlGrants<DB> {
    async fn grant(&self, request: &Request) -> Result<Grant, GrantError> {
        let ask = async |connection: &mut DB::Connection| {
            for tries in 0..TRIES {
                let (now, rows) = self.read(connection).await?;
                let Some(choice) = choose(rows, now, request, tries, rand::random()) else {
                    return Ok(Err(GrantError::Exhausted { workers: request.workers }));
                };
                if self.write(connection, &choice).await? {
                    return Ok(Ok(choice.to().grant()));
                }
            }
            Ok(Err(GrantError::unavailable(InputError::new(format!(
                "others were faster {TRIES} times in a row; ask again"
            )))))
        };
        answered(&self.pool, PATIENCE, identity, ask).await.map_err(failed::<DB>)?
    }

    async fn release(&self, holder: Holder, worker: u64, used_until: u64) -> Result<(), GrantError> {
        let sql = self.sql(
            "UPDATE {table} SET granted_until = CASE WHEN granted_until < $1 THEN granted_until \
             WHEN granted_from > $2 THEN granted_from ELSE $3 END, holder = $4 \
             WHERE worker_group = $5 AND worker = $6 AND holder = $7",
        );
        let used = Value::Int(choice::signed(used_until));
        let arguments = vec![
            used.clone(),
            used.clone(),
            used,
            // Nobody has it any more, and its last holder must not come back to it.
            Value::bytes(&NOBODY),
            self.group(),
            Value::Int(choice::signed(worker)),
            Value::bytes(&holder.to_bytes()),
        ];
        let give_back =
            async |connection: &mut DB::Connection| DB::run(connection, sql, arguments).await.map(drop);
        answered(&self.pool, PATIENCE, identity, give_back).await.map_err(failed::<DB>)
    }
}
