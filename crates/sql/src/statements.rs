//! The statements, once for the three databases.
//!
//! `$1`, `$2`, … stand in the order of the arguments, each once: MySQL has no other way. `{now}` is the clock of the server.

use onlyonce_core::Listed;
use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

use crate::dialect::Dialect;
use crate::table::Table;
use crate::value::fill;

/// In progress.
pub(crate) const RUNNING: i64 = 0;
/// Completed.
pub(crate) const COMPLETED: i64 = 1;
/// Failed: the same call may run again.
pub(crate) const RELEASED: i64 = 2;
/// Nobody knows.
pub(crate) const UNKNOWN: i64 = 3;

/// What is read of a record, by place.
const COLUMNS: &str = "id, hash_rules{wide}, hash, route, key_hash, scope_hash, fence, owner, attempts{wide}, \
                       began_over{wide}, status{wide}, settled_at, {answer}, lease_until, created_at, expires_at, {now}";

/// Counts as absent.
const EXPIRED: &str = "(expires_at <= {now} AND (status <> 0 OR lease_until <= {now}){held})";

/// The rest of it where a clock that is set may prolong the life of a record; see `Record::kept_since`.
const HELD: &str =
    " AND ({written} >= {stepped} OR {now} - MIN({stepped}, expires_at) >= expires_at - {written})";
const WRITTEN: &str = "CASE status WHEN 0 THEN created_at ELSE settled_at END";

/// Every statement that a call needs, ready to be run.
#[derive(Debug)]
#[doc(hidden)]
pub struct Statements {
    pub(crate) insert: Statement,
    /// The same as the first statement of a transaction.
    pub(crate) claim: Statement,
    pub(crate) take: Statement,
    /// Gives a new fence to a record that was just inserted.
    pub(crate) raise: Statement,
    pub(crate) renew: Statement,
    pub(crate) settle: Statement,
    pub(crate) forget: Statement,
    pub(crate) select: Statement,
    /// Says that somebody listens, where somebody can.
    pub(crate) listen: Option<Statement>,
    pub(crate) expired: Statement,
    pub(crate) count: Statement,
    /// For listings, whose conditions differ.
    pub(crate) list_template: String,
    /// Open at its end: a condition, an order and a limit follow.
    pub(crate) unresolved_template: String,
    pub(crate) delete_template: String,
    pub(crate) table: String,
}

/// What one database says differently.
pub(crate) struct Parts {
    /// The statement that inserts a new record. `{hurry}` stands where a claim says for how long it waits.
    pub(crate) insert: &'static str,
    /// What is said there, where that costs no statement of its own.
    pub(crate) hurry: &'static str,
    /// What is said after it, so that the handler waits as it always does; see [`Dialect::UNHURRIED`].
    pub(crate) unhurried: &'static str,
    /// What is said after a change, so that who waits is woken.
    pub(crate) wake: String,
    /// How rows are locked that others do not hold.
    pub(crate) skip_locked: &'static str,
    /// How rows are removed by their ids, and no other row is touched.
    pub(crate) delete: &'static str,
    pub(crate) listen: Option<&'static str>,
}

impl Statements {
    pub(crate) fn new<DB: Dialect>(table: &Table, parts: &Parts) -> Self {
        let template = |sql: &str| {
            let held = if DB::NOW.is_none() { HELD.replace("{written}", WRITTEN) } else { String::new() };
            let sql = sql.replace("{expired}", EXPIRED).replace("{held}", &held);
            let sql = sql.replace("{table}", &table.to_string());
            let sql = sql.replace("{columns}", COLUMNS).replace("{answer}", "answer");
            let sql = sql.replace("{wake}", &parts.wake);
            let sql = sql.replace("{wide}", DB::WIDE);
            match DB::NOW {
                Some(now) => sql.replace("{now}", now),
                None => sql,
            }
        };
        let ready = |sql: &str| placed::<DB>(&template(sql));
        let insert = parts.insert.replace("{hurry}", "");
        let settle = "UPDATE {table} SET status = $1, answer = $2, settled_at = {now}, expires_at = {now} + $3 \
                      WHERE id = $4 AND owner = $5 AND fence = COALESCE($6, fence) AND status = 0 \
                      AND NOT {expired} {wake}";
        // A listing says of what kind an answer is, and leaves the rest of it where it is.
        let beginning = format!("SUBSTR(answer, 1, {})", Listed::ANSWER_BYTES);
        let columns = COLUMNS.replace("{answer}", &beginning);
        let list = format!("SELECT {columns} FROM {{table}} WHERE NOT {{expired}}");
        Self {
            insert: ready(&insert),
            claim: ready(&format!("{}{}", parts.insert.replace("{hurry}", parts.hurry), parts.unhurried)),
            take: ready(
                "UPDATE {table} SET hash_rules = $1, hash = $2, route = $3, key_hash = $4, scope_hash = $5, fence = $6, \
                 owner = $7, attempts = $8, began_over = $9, status = 0, settled_at = 0, answer = NULL, \
                 lease_until = $10, created_at = $11, expires_at = $12 \
                 WHERE id = $13 AND fence = $14 AND status = $15 AND lease_until = $16 AND expires_at = $17 {wake}",
            ),
            raise: ready(
                "UPDATE {table} SET fence = {now} WHERE id = $1 AND owner = $2 AND fence = $3 AND status = 0 RETURNING fence",
            ),
            renew: ready(
                "UPDATE {table} SET lease_until = {now} + $1 WHERE id = $2 AND owner = $3 \
                 AND fence = COALESCE($4, fence) AND status = 0 AND lease_until > {now}",
            ),
            settle: ready(settle),
            forget: ready(
                "DELETE FROM {table} WHERE id = $1 AND fence = $2 AND NOT (status = 0 AND lease_until > {now}) \
                 AND NOT {expired} {wake}",
            ),
            select: ready("SELECT {columns} FROM {table} WHERE id = $1"),
            listen: parts.listen.map(ready),
            expired: ready(&format!(
                "SELECT id FROM {{table}} WHERE expires_at <= (SELECT {{now}}) AND {{expired}} \
                 ORDER BY expires_at LIMIT $1 {}",
                parts.skip_locked
            )),
            count: ready(
                "SELECT (CASE WHEN status = 0 AND lease_until <= {now} THEN 3 ELSE status END){wide}, COUNT(*) \
                 FROM {table} WHERE NOT {expired} GROUP BY 1",
            ),
            list_template: template(&list),
            unresolved_template: template(
                "SELECT COUNT(*), COUNT(CASE WHEN status = 0 THEN 1 END), COALESCE({now} - MIN(created_at), 0){wide} \
                 FROM (SELECT status, created_at FROM {table} WHERE NOT {expired}",
            ),
            delete_template: template(&format!("{} WHERE {{expired}} AND id IN ", parts.delete)),
            table: table.to_string(),
        }
    }
}

/// A statement, and whether it wants to be told the time, and when the clock was set: where the database has no clock that would do.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    pub(crate) sql: SqlStr,
    pub(crate) timed: bool,
    pub(crate) held: bool,
}

/// A template as this database counts its arguments.
pub(crate) fn placed<DB: Dialect>(template: &str) -> Statement {
    let mut places = 0;
    let sql = fill(template, |sql, place| {
        places = places.max(place + 1);
        DB::place(sql, place + 1);
    });
    let (timed, held) = (sql.contains("{now}"), sql.contains("{stepped}"));
    let place = |number| {
        let mut place = String::new();
        DB::place(&mut place, number);
        place
    };
    let sql = sql.replace("{now}", &place(places + 1)).replace("{stepped}", &place(places + 2));
    Statement { sql: safe(sql), timed, held }
}

/// Our own text: table names were checked, all else is a number, hexadecimal digits, or an argument.
pub(crate) fn safe(sql: String) -> SqlStr {
    AssertSqlSafe(sql).into_sql_str()
}
