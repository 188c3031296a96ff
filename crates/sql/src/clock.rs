//! The time of the records where the database has no clock that would do: noted in a table, so that all processes, and those
//! that come after them, have the same.

use std::sync::Arc;

use onlyonce_core::{Clock, Moment, TimeNote, Timeline, Uptime};

use crate::dialect::{Dialect, Meaning};
use crate::row::{micros, moment};
use crate::statements::{placed, safe};
use crate::table::Table;
use crate::value::Value;

/// Goes on after what is noted. Where the database has a clock of its own nothing is noted, and nobody asks for the time.
pub(crate) async fn resume<DB: Dialect>(
    connection: &mut DB::Connection,
    table: &Table,
    clock: Arc<dyn Clock>,
) -> Result<Timeline, sqlx::Error> {
    if DB::NOW.is_some() {
        return Ok(Timeline::resume(clock, None));
    }
    let sql = safe(format!("SELECT boot, uptime, wall, time, stepped FROM {}", table.clock()));
    let rows = DB::rows(connection, sql, Vec::new()).await?;
    let note = rows.first().map(note::<DB>).transpose()?;
    let time = Timeline::resume(clock, note);
    match keep::<DB>(connection, table, &time).await {
        // Whoever may only look writes nothing that would need the time. And a start does not fail because somebody writes just now: the
        // next sweep notes it.
        Err(error) if !matches!(DB::meaning(&error), Meaning::ReadOnly | Meaning::Locked) => Err(error),
        _ => Ok(time),
    }
}

/// Notes the time, if it is time for it.
pub(crate) async fn keep<DB: Dialect>(
    connection: &mut DB::Connection,
    table: &Table,
    time: &Timeline,
) -> Result<(), sqlx::Error> {
    if let Some(note) = write::<DB>(connection, table, time).await? {
        time.noted(&note);
    }
    Ok(())
}

/// What is to be noted now. Nothing where the database has a clock of its own.
pub(crate) fn due<DB: Dialect>(time: &Timeline) -> Option<TimeNote> {
    if DB::NOW.is_some() {
        return None;
    }
    // A clock that was set is noticed by whoever asks for the time.
    let _ = time.now();
    time.to_note()
}

/// The same as a part of a change: what was written is noted when that is committed.
pub(crate) async fn write<DB: Dialect>(
    connection: &mut DB::Connection,
    table: &Table,
    time: &Timeline,
) -> Result<Option<TimeNote>, sqlx::Error> {
    let Some(note) = due::<DB>(time) else { return Ok(None) };
    let sql = "INSERT INTO {table} (one, boot, uptime, wall, time, stepped) VALUES (1, $1, $2, $3, $4, $5) \
               ON CONFLICT (one) DO UPDATE SET boot = excluded.boot, uptime = excluded.uptime, wall = excluded.wall, \
               time = excluded.time, stepped = MAX(stepped, excluded.stepped)";
    let boot = note.uptime.map(|uptime| uptime.boot.to_vec().into());
    let since_boot = note.uptime.map_or(Moment::from_micros(0), |uptime| uptime.since_boot);
    let arguments = vec![
        Value::MaybeBytes(boot),
        micros(since_boot),
        micros(Moment::from_micros(note.wall)),
        micros(note.time),
        micros(note.stepped),
    ];
    let sql = placed::<DB>(&sql.replace("{table}", &table.clock())).sql;
    DB::run(connection, sql, arguments).await?;
    Ok(Some(note))
}

fn note<DB: Dialect>(row: &DB::Row) -> Result<TimeNote, sqlx::Error> {
    let time = |column| DB::int(row, column).map(moment);
    let since_boot = time(1)?;
    let boot = DB::bytes(row, 0)?.and_then(|boot| <[u8; 16]>::try_from(boot).ok());
    let uptime = boot.map(|boot| Uptime { boot, since_boot });
    Ok(TimeNote { uptime, wall: time(2)?.as_micros(), time: time(3)?, stepped: time(4)? })
}
