//! What a relay does with the table: takes events in hand, forgets them, or puts them off.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::{Connection as _, SqlStr};

use super::event::{Event, OutboxError};
use super::table::{Outbox, timed};
use crate::dialect::Database;
use crate::pooled::answered;
use crate::statements::safe;
use crate::value::Value;

/// An event that a relay has in hand.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) seq: i64,
    pub(super) attempts: i64,
    pub(super) event: Event,
}

/// Events that are published one after the other: of one key, or one alone.
pub(super) type Line = Vec<Taken>;

/// Several relays look at the same beginning of the table; each finds some that no other has locked.
const CHOICE: u32 = 4;

/// Whether it is time for an event. None waits for more than an hour, so that one which seems to was put off by a clock that has been
/// set back since, or by a release that knew no limit.
const DUE: &str = "f.not_before - {now} NOT BETWEEN 1 AND 3600000000";

/// Until an event that can't be read is looked at again.
const DAMAGED_LATER: Duration = Duration::from_secs(300);

impl<DB: Database> Outbox<DB> {
    /// Takes events in hand, for so long: nobody else takes them until then. A short transaction: no connection and no lock
    /// is held while they are published.
    ///
    /// The first event of a key stands for all of its key: who has it in hand, has those behind it too, and they stay untouched
    /// until it is deleted.
    pub(super) async fn take(
        &self,
        limit: u32,
        hold: Duration,
        patience: Duration,
    ) -> Result<Vec<Line>, OutboxError> {
        let take = async |connection: &mut DB::Connection| self.take_on(connection, limit, hold).await;
        self.answered("take events", patience, take).await
    }

    pub(super) async fn answered<T>(
        &self,
        what: &'static str,
        patience: Duration,
        ask: impl AsyncFnOnce(&mut DB::Connection) -> Result<T, OutboxError>,
    ) -> Result<T, OutboxError> {
        answered(&self.pool, patience, OutboxError::failed::<DB>(what), ask).await
    }

    async fn take_on(
        &self,
        connection: &mut DB::Connection,
        limit: u32,
        hold: Duration,
    ) -> Result<Vec<Line>, OutboxError> {
        let failed = OutboxError::failed::<DB>("take events");
        let mut transaction = connection.begin_with(DB::BEGIN).await.map_err(&failed)?;
        let due = self.due(&mut transaction, limit.saturating_mul(CHOICE)).await?;
        if due.is_empty() {
            transaction.rollback().await.map_err(&failed)?;
            return Ok(Vec::new());
        }
        // SQLite has one writer at a time: there is nobody to skip.
        let skip = if DB::WRITERS.is_some() { "" } else { "FOR UPDATE SKIP LOCKED" };
        let select = format!(
            "SELECT {} FROM {} AS f WHERE seq IN ({}) AND {DUE} ORDER BY seq LIMIT {limit} {skip}",
            columns::<DB>(),
            self.table,
            numbers(&due)
        );
        let (sql, arguments) = timed::<DB>(&select, Vec::new());
        let rows = DB::rows(&mut transaction, sql, arguments).await.map_err(&failed)?;
        let (heads, damaged) = read_all::<DB>(&rows)?;
        for (seq, error) in &damaged {
            let error = error as &dyn std::error::Error;
            tracing::error!(seq, error, "an event in the outbox can't be read; look at its row");
        }
        let damaged: Vec<i64> = damaged.into_iter().map(|(seq, _)| seq).collect();
        self.hold(&mut transaction, &damaged, DAMAGED_LATER).await?;
        let firsts: Vec<i64> = heads.iter().map(|head| head.seq).collect();
        self.hold(&mut transaction, &firsts, hold).await?;
        let room = limit.saturating_sub(u32::try_from(heads.len()).unwrap_or(limit));
        let behind = self.behind(&mut transaction, &firsts, room).await?;
        transaction.commit().await.map_err(&failed)?;
        Ok(lines(heads, behind))
    }

    /// Those that may be taken: of each key only the first.
    async fn due(&self, connection: &mut DB::Connection, limit: u32) -> Result<Vec<i64>, OutboxError> {
        let failed = OutboxError::failed::<DB>("look for events");
        let select = format!(
            "SELECT f.seq FROM {table} AS f WHERE (f.event_key IS NULL OR NOT EXISTS (SELECT 1 FROM {table} AS e \
             WHERE e.event_key = f.event_key AND e.seq < f.seq)) AND {DUE} ORDER BY f.seq LIMIT {limit}",
            table = self.table
        );
        let (sql, arguments) = timed::<DB>(&select, Vec::new());
        let rows = DB::rows(connection, sql, arguments).await.map_err(&failed)?;
        rows.iter().map(|row| DB::int(row, 0).map_err(&failed)).collect()
    }

    /// Those behind these in the order of their keys.
    async fn behind(
        &self,
        connection: &mut DB::Connection,
        heads: &[i64],
        limit: u32,
    ) -> Result<Vec<Taken>, OutboxError> {
        if heads.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        let failed = OutboxError::failed::<DB>("take events");
        let select = format!(
            "SELECT {} FROM {table} AS h JOIN {table} AS f ON f.event_key = h.event_key AND f.seq > h.seq \
             WHERE h.seq IN ({}) ORDER BY f.seq LIMIT {limit}",
            columns::<DB>(),
            numbers(heads),
            table = self.table
        );
        let rows = DB::rows(connection, safe(select), Vec::new()).await.map_err(failed)?;
        let (taken, damaged) = read_all::<DB>(&rows)?;
        // One that can't be read is dealt with when it is the first of its key; until then only first ones are taken.
        Ok(if damaged.is_empty() { taken } else { Vec::new() })
    }

    async fn hold(
        &self,
        connection: &mut DB::Connection,
        seqs: &[i64],
        hold: Duration,
    ) -> Result<(), OutboxError> {
        if seqs.is_empty() {
            return Ok(());
        }
        let update = format!(
            "UPDATE {} SET attempts = attempts + 1, not_before = {} + {{now}} WHERE seq IN ({})",
            self.table,
            micros(hold),
            numbers(seqs)
        );
        let (sql, arguments) = timed::<DB>(&update, Vec::new());
        let failed = OutboxError::failed::<DB>("hold events");
        DB::run(connection, sql, arguments).await.map(drop).map_err(failed)
    }

    /// They are published: they may go.
    pub(super) async fn published(&self, seqs: &[i64], patience: Duration) -> Result<(), OutboxError> {
        if seqs.is_empty() {
            return Ok(());
        }
        let sql = safe(format!("DELETE FROM {} WHERE seq IN ({})", self.table, numbers(seqs)));
        self.run("delete published events", sql, Vec::new(), patience).await
    }

    /// It was not published: it may be tried again after a pause.
    pub(super) async fn later(
        &self,
        seq: i64,
        pause: Duration,
        patience: Duration,
    ) -> Result<(), OutboxError> {
        let update =
            format!("UPDATE {} SET not_before = {} + {{now}} WHERE seq = {seq}", self.table, micros(pause));
        let (sql, arguments) = timed::<DB>(&update, Vec::new());
        self.run("put an event off", sql, arguments, patience).await
    }

    async fn run(
        &self,
        what: &'static str,
        sql: SqlStr,
        arguments: Vec<Value>,
        patience: Duration,
    ) -> Result<(), OutboxError> {
        let run = async |connection: &mut DB::Connection| {
            let done = DB::run(connection, sql, arguments).await;
            done.map(drop).map_err(OutboxError::failed::<DB>(what))
        };
        self.answered(what, patience, run).await
    }
}

/// So many of one key are taken at a time, so that one that hangs does not take the place of all others.
const LONGEST_LINE: usize = 16;

/// Groups them by key, in their order.
fn lines(heads: Vec<Taken>, behind: Vec<Taken>) -> Vec<Line> {
    let mut of_key: BTreeMap<String, usize> = BTreeMap::new();
    let mut lines: Vec<Line> = Vec::new();
    for head in heads {
        if let Some(key) = head.event.order_key() {
            of_key.insert(key.to_owned(), lines.len());
        }
        lines.push(vec![head]);
    }
    for one in behind {
        if let Some(line) = one.event.order_key().and_then(|key| of_key.get(key))
            && lines[*line].len() < LONGEST_LINE
        {
            lines[*line].push(one);
        }
    }
    lines
}

fn columns<DB: Database>() -> String {
    format!("f.seq, f.attempts{}, f.id, f.topic, f.payload, f.headers, f.event_key", DB::WIDE)
}

fn numbers(seqs: &[i64]) -> String {
    seqs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4)
}

/// Rows that can't be read, by their number.
type Damaged = Vec<(i64, OutboxError)>;

/// The events in these rows. One that can't be read must not hold up the others.
fn read_all<DB: Database>(rows: &[DB::Row]) -> Result<(Vec<Taken>, Damaged), OutboxError> {
    let (mut taken, mut damaged) = (Vec::new(), Vec::new());
    for row in rows {
        let seq = DB::int(row, 0).map_err(OutboxError::failed::<DB>("read an event"))?;
        match read::<DB>(seq, row) {
            Ok(one) => taken.push(one),
            Err(error) => damaged.push((seq, error)),
        }
    }
    Ok((taken, damaged))
}

fn read<DB: Database>(seq: i64, row: &DB::Row) -> Result<Taken, OutboxError> {
    let failed = OutboxError::failed::<DB>("read an event");
    let bytes = |column| DB::bytes(row, column).map(Option::unwrap_or_default).map_err(&failed);
    let utf8 = |bytes| String::from_utf8(bytes).map_err(|_| OutboxError::input("it is not UTF-8"));
    let headers: BTreeMap<String, String> = serde_json::from_slice(&bytes(5)?).map_err(|error| {
        OutboxError::input(format!("its headers are not a JSON object of texts: {error}"))
    })?;
    let event = Event {
        id: utf8(bytes(2)?)?,
        topic: utf8(bytes(3)?)?,
        key: DB::bytes(row, 6).map_err(&failed)?.map(utf8).transpose()?,
        payload: bytes(4)?.into(),
        headers,
    };
    Ok(Taken { seq, attempts: DB::int(row, 1).map_err(&failed)?, event })
}
