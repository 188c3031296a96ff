//! The table, and how events get into it.

use std::convert::identity;
use std::fmt;
use std::time::Duration;

use onlyonce_core::{Clock, InputError, SystemClock};
use sqlx::{Pool, SqlStr};

use super::check::check;
use super::event::{Event, OutboxError};
use crate::dialect::Database;
use crate::late::{self, PATIENCE, in_time};
use crate::migrate::is_made;
use crate::statements::safe;
use crate::table::Table;
use crate::value::{Value, fill};

/// Events that wait for their relay, in the table `onlyonce_outbox` of your own database. Cheap to clone.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn pay(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use onlyonce_sql::outbox::{Event, Outbox};
/// let outbox = Outbox::new(pool.clone());
/// outbox.migrate().await?;
/// let mut tx = pool.begin().await?;
/// sqlx::query("UPDATE orders SET status = 'paid' WHERE id = 42").execute(&mut *tx).await?;
/// outbox.put(&mut tx, &Event::new("orders.paid", r#"{"order":42}"#)).await?;
/// tx.commit().await?; // both, or neither
/// # Ok(()) }
/// ```
pub struct Outbox<DB: Database> {
    pub(super) pool: Pool<DB>,
    pub(super) table: Table,
    patience: Duration,
}

impl<DB: Database> Clone for Outbox<DB> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), table: self.table.clone(), patience: self.patience }
    }
}

impl<DB: Database> fmt::Debug for Outbox<DB> {
    // Without the pool: its options hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outbox({})", DB::WORD)
    }
}

impl<DB: Database> Outbox<DB> {
    /// The outbox of this database. The table must be there: see [`migrate`](Self::migrate).
    #[must_use]
    pub fn new(pool: Pool<DB>) -> Self {
        Self { pool, table: Table::outbox(), patience: PATIENCE }
    }

    /// How long to wait for the answer to a statement; 10 s by default. A database that says nothing does not hang up either. A
    /// [relay](super::Relay) has one of its own.
    #[must_use]
    pub fn response_timeout(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// In another table than `onlyonce_outbox`.
    ///
    /// # Errors
    /// If the name can't be used.
    pub fn table(mut self, name: &str) -> Result<Self, InputError> {
        self.table = Table::new(None, name)?;
        Ok(self)
    }

    /// Creates the table where it is missing, and adds what an older release did not have; safe to run at every start, by many at
    /// once. The same SQL is shipped as `migrations/*/outbox.sql`.
    ///
    /// # Errors
    /// If the user may not create tables, or the database fails.
    pub async fn migrate(&self) -> Result<(), OutboxError> {
        let patience = late::migration(self.patience);
        self.answered("migrate", patience, async |connection| self.migrate_on(connection).await).await
    }

    async fn migrate_on(&self, connection: &mut DB::Connection) -> Result<(), OutboxError> {
        let failed = OutboxError::failed::<DB>("migrate");
        let file = schema::<DB>().replace("onlyonce_outbox", self.table.name());
        // Twice: of two that start together one may find missing what the other is just making.
        let mut tried = Ok(());
        for _ in 0..2 {
            let made = is_made::<DB>(connection, &file).await.map_err(&failed)?;
            let keyed = self.has(connection, "event_key").await;
            if made && keyed {
                return Ok(());
            }
            let older = !keyed && self.has(connection, "seq").await;
            let sql = if older { format!("{};{file}", self.add_keys()) } else { file.clone() };
            tried = DB::raw(connection, safe(sql)).await.map(drop);
            if tried.is_ok() {
                break;
            }
        }
        tried.map_err(failed)
    }

    async fn has(&self, connection: &mut DB::Connection, column: &str) -> bool {
        let sql = safe(format!("SELECT {column} FROM {} WHERE 1 = 0", self.table));
        DB::rows(connection, sql, Vec::new()).await.is_ok()
    }

    /// What gives an older table its keys.
    fn add_keys(&self) -> String {
        let table = self.table.name();
        match DB::WORD {
            "postgres" => format!("ALTER TABLE {table} ADD COLUMN IF NOT EXISTS event_key BYTEA"),
            "mysql" => format!(
                "ALTER TABLE {table} ADD COLUMN event_key VARBINARY(255), ADD INDEX {table}_key (event_key, seq)"
            ),
            _ => format!("ALTER TABLE {table} ADD COLUMN event_key BLOB"),
        }
    }

    /// Writes an event within the transaction of the business: it will be published if, and only if, that commits.
    ///
    /// # Errors
    /// If the event can't be stored, or is one that brokers do not take: a header with a line break, a topic with a space. Then
    /// the transaction can't be committed in good faith either. If the database does not answer in time, its connection owes an answer:
    /// close it. A transaction of [`same_transaction`](crate::SqlStore::same_transaction) does that by itself.
    pub async fn put(&self, transaction: &mut DB::Connection, event: &Event) -> Result<(), OutboxError> {
        check(event)?;
        let Event { id, topic, key, payload, headers } = event;
        let headers = serde_json::to_vec(headers).map_err(|error| OutboxError::input(error.to_string()))?;
        let arguments = vec![
            Value::bytes(id.as_bytes()),
            Value::bytes(topic.as_bytes()),
            Value::Bytes(payload.clone()),
            Value::Bytes(headers.into()),
            Value::MaybeBytes(key.as_ref().map(|key| key.clone().into())),
        ];
        let insert = format!(
            "INSERT INTO {} (id, topic, payload, headers, event_key, attempts, not_before, created_at) \
             VALUES ($1, $2, $3, $4, $5, 0, 0, {{now}})",
            self.table
        );
        let (sql, arguments) = timed::<DB>(&insert, arguments);
        let failed = OutboxError::failed::<DB>("write an event");
        let written = in_time::<DB, _, _>(self.patience, identity, DB::run(transaction, sql, arguments));
        written.await.map(drop).map_err(failed)
    }

    /// How many events wait, those that a relay has in hand among them.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn waiting(&self) -> Result<u64, OutboxError> {
        let failed = OutboxError::failed::<DB>("count");
        let sql = safe(format!("SELECT COUNT(*) FROM {}", self.table));
        let ask = async |connection: &mut DB::Connection| {
            DB::rows(connection, sql, Vec::new()).await.map_err(OutboxError::failed::<DB>("count"))
        };
        let rows = self.answered("count", self.patience, ask).await?;
        let count = rows.first().map(|row| DB::int(row, 0)).transpose().map_err(&failed)?;
        Ok(count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0))
    }
}

/// The SQL of the table, as it is shipped.
fn schema<DB: Database>() -> &'static str {
    match DB::WORD {
        "postgres" => include_str!("../../migrations/postgres/outbox.sql"),
        "mysql" => include_str!("../../migrations/mysql/outbox.sql"),
        _ => include_str!("../../migrations/sqlite/outbox.sql"),
    }
}

/// The statement with the clock of the server, or with the time as its last argument where that has none. `{now}` stands
/// once in it, after all others.
pub(super) fn timed<DB: Database>(template: &str, mut arguments: Vec<Value>) -> (SqlStr, Vec<Value>) {
    let template = match DB::NOW {
        Some(now) => template.replace("{now}", now),
        None => {
            arguments.push(Value::Int(i64::try_from(SystemClock.wall_micros()).unwrap_or(i64::MAX)));
            template.replace("{now}", &format!("${}", arguments.len()))
        }
    };
    (safe(fill(&template, |sql, place| DB::place(sql, place + 1))), arguments)
}
