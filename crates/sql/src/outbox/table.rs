//! The table, and the four things that are done with it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use onlyonce_core::{Clock, InputError, MAX_KEY_BYTES, SystemClock};
use sqlx::{Pool, SqlStr};

use super::event::{Event, OutboxError};
use crate::dialect::Database;
use crate::statements::safe;
use crate::table::Table;
use crate::value::{Value, fill};

/// The longest name of a topic, in bytes.
const LONGEST_TOPIC: usize = 1024;

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
    pool: Pool<DB>,
    table: Table,
}

impl<DB: Database> Clone for Outbox<DB> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), table: self.table.clone() }
    }
}

impl<DB: Database> fmt::Debug for Outbox<DB> {
    // Without the pool: its options hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outbox({})", DB::WORD)
    }
}

/// An event that a relay has in hand.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) seq: i64,
    pub(super) attempts: i64,
    pub(super) event: Event,
}

impl<DB: Database> Outbox<DB> {
    /// The outbox of this database. The table must be there: see [`migrate`](Self::migrate).
    #[must_use]
    pub fn new(pool: Pool<DB>) -> Self {
        Self { pool, table: Table::outbox() }
    }

    /// In another table than `onlyonce_outbox`.
    ///
    /// # Errors
    /// If the name can't be used.
    pub fn table(mut self, name: &str) -> Result<Self, InputError> {
        self.table = Table::new(None, name)?;
        Ok(self)
    }

    /// Creates the table where it is missing; safe to run at every start, by many at once. The same SQL is shipped as
    /// `migrations/*/outbox.sql`.
    ///
    /// # Errors
    /// If the user may not create tables, or the database fails.
    pub async fn migrate(&self) -> Result<(), OutboxError> {
        let failed = OutboxError::failed::<DB>("migrate");
        let mut connection = self.pool.acquire().await.map_err(&failed)?;
        let sql = safe(schema::<DB>().replace("onlyonce_outbox", self.table.name()));
        match DB::raw(&mut connection, sql.clone()).await {
            Ok(_) => Ok(()),
            // Two that start together may both find it missing.
            Err(_) => DB::raw(&mut connection, sql).await.map(drop).map_err(failed),
        }
    }

    /// Writes an event within the transaction of the business: it will be published if, and only if, that commits.
    ///
    /// # Errors
    /// If the event can't be stored; then the transaction can't be committed in good faith either.
    pub async fn put(&self, transaction: &mut DB::Connection, event: &Event) -> Result<(), OutboxError> {
        let Event { id, topic, payload, headers } = event;
        if id.is_empty() || id.len() > MAX_KEY_BYTES {
            let bytes = id.len();
            return Err(OutboxError::input(format!(
                "the message id has {bytes} bytes; send 1 to {MAX_KEY_BYTES}"
            )));
        }
        if topic.is_empty() || topic.len() > LONGEST_TOPIC {
            let bytes = topic.len();
            return Err(OutboxError::input(format!(
                "the topic has {bytes} bytes; send 1 to {LONGEST_TOPIC}"
            )));
        }
        let headers = serde_json::to_vec(headers).map_err(|error| OutboxError::input(error.to_string()))?;
        let arguments = vec![
            Value::bytes(id.as_bytes()),
            Value::bytes(topic.as_bytes()),
            Value::Bytes(payload.clone()),
            Value::Bytes(headers.into()),
        ];
        let insert = format!(
            "INSERT INTO {} (id, topic, payload, headers, attempts, not_before, created_at) \
             VALUES ($1, $2, $3, $4, 0, 0, {{now}})",
            self.table
        );
        let (sql, arguments) = timed::<DB>(&insert, arguments);
        DB::run(transaction, sql, arguments)
            .await
            .map(drop)
            .map_err(OutboxError::failed::<DB>("write an event"))
    }

    /// How many events wait, those that a relay has in hand among them.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn waiting(&self) -> Result<u64, OutboxError> {
        let failed = OutboxError::failed::<DB>("count");
        let mut connection = self.pool.acquire().await.map_err(&failed)?;
        let sql = safe(format!("SELECT COUNT(*) FROM {}", self.table));
        let rows = DB::rows(&mut connection, sql, Vec::new()).await.map_err(&failed)?;
        let count = rows.first().map(|row| DB::int(row, 0)).transpose().map_err(&failed)?;
        Ok(count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0))
    }

    /// Takes events in hand, for so long: nobody else takes them until then. A short transaction: no connection and no lock
    /// is held while they are published.
    pub(super) async fn take(&self, limit: u32, hold: Duration) -> Result<Vec<Taken>, OutboxError> {
        let failed = OutboxError::failed::<DB>("take events");
        let mut transaction = self.pool.begin_with(DB::BEGIN).await.map_err(&failed)?;
        // SQLite has one writer at a time: there is nobody to skip.
        let skip = if DB::WRITERS.is_some() { "" } else { "FOR UPDATE SKIP LOCKED" };
        let select = format!(
            "SELECT seq, attempts{}, id, topic, payload, headers FROM {} WHERE not_before <= {{now}} \
             ORDER BY seq LIMIT {limit} {skip}",
            DB::WIDE,
            self.table
        );
        let (sql, arguments) = timed::<DB>(&select, Vec::new());
        let rows = DB::rows(&mut transaction, sql, arguments).await.map_err(&failed)?;
        let taken = rows.iter().map(read::<DB>).collect::<Result<Vec<_>, _>>()?;
        if taken.is_empty() {
            return Ok(taken);
        }
        self.hold(&mut transaction, &numbers(taken.iter().map(|taken| taken.seq)), hold).await?;
        transaction.commit().await.map_err(&failed)?;
        Ok(taken)
    }

    async fn hold(
        &self,
        connection: &mut DB::Connection,
        numbers: &str,
        hold: Duration,
    ) -> Result<(), OutboxError> {
        let micros = i64::try_from(hold.as_micros()).unwrap_or(i64::MAX / 4);
        let update = format!(
            "UPDATE {} SET attempts = attempts + 1, not_before = {micros} + {{now}} WHERE seq IN ({numbers})",
            self.table
        );
        let (sql, arguments) = timed::<DB>(&update, Vec::new());
        let failed = OutboxError::failed::<DB>("hold events");
        DB::run(connection, sql, arguments).await.map(drop).map_err(failed)
    }

    /// They are published: they may go.
    pub(super) async fn published(&self, seqs: &[i64]) -> Result<(), OutboxError> {
        if seqs.is_empty() {
            return Ok(());
        }
        let failed = OutboxError::failed::<DB>("delete published events");
        let mut connection = self.pool.acquire().await.map_err(&failed)?;
        let numbers = numbers(seqs.iter().copied());
        let sql = safe(format!("DELETE FROM {} WHERE seq IN ({numbers})", self.table));
        DB::run(&mut connection, sql, Vec::new()).await.map(drop).map_err(failed)
    }

    /// It was not published: it may be tried again after a pause.
    pub(super) async fn later(&self, seq: i64, pause: Duration) -> Result<(), OutboxError> {
        let failed = OutboxError::failed::<DB>("put an event off");
        let mut connection = self.pool.acquire().await.map_err(&failed)?;
        let micros = i64::try_from(pause.as_micros()).unwrap_or(i64::MAX / 4);
        let update = format!("UPDATE {} SET not_before = {micros} + {{now}} WHERE seq = {seq}", self.table);
        let (sql, arguments) = timed::<DB>(&update, Vec::new());
        DB::run(&mut connection, sql, arguments).await.map(drop).map_err(failed)
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
fn timed<DB: Database>(template: &str, mut arguments: Vec<Value>) -> (SqlStr, Vec<Value>) {
    let template = match DB::NOW {
        Some(now) => template.replace("{now}", now),
        None => {
            arguments.push(Value::Int(i64::try_from(SystemClock.wall_micros()).unwrap_or(i64::MAX)));
            template.replace("{now}", &format!("${}", arguments.len()))
        }
    };
    (safe(fill(&template, |sql, place| DB::place(sql, place + 1))), arguments)
}

fn numbers(seqs: impl Iterator<Item = i64>) -> String {
    seqs.map(|seq| seq.to_string()).collect::<Vec<_>>().join(", ")
}

fn read<DB: Database>(row: &DB::Row) -> Result<Taken, OutboxError> {
    let failed = OutboxError::failed::<DB>("read an event");
    let bytes = |column| DB::bytes(row, column).map(Option::unwrap_or_default).map_err(&failed);
    let text = |column| {
        String::from_utf8(bytes(column)?)
            .map_err(|_| OutboxError::input("an event in the outbox is not UTF-8"))
    };
    let headers: BTreeMap<String, String> = serde_json::from_slice(&bytes(5)?)
        .map_err(|error| OutboxError::input(format!("the headers of an event in the outbox: {error}")))?;
    let event = Event { id: text(2)?, topic: text(3)?, payload: bytes(4)?.into(), headers };
    Ok(Taken { seq: DB::int(row, 0).map_err(&failed)?, attempts: DB::int(row, 1).map_err(&failed)?, event })
}
