//! PostgreSQL 14 or newer.

use std::fmt::Write as _;
use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgQueryResult, PgRow};
use sqlx::{ConnectOptions as _, Pool, Postgres, SqlSafeStr as _};

use super::{Dialect, Done, Flavour, Inside, Look, Meaning, Opening, bind_by_name, by_name};
use crate::Concern;
use crate::migrate;
use crate::statements::{Parts, Statements};
use crate::table::Table;
use crate::value::Value;
use crate::wakes::{self, Wakes};

bind_by_name!(Postgres);

fn done(result: PgQueryResult) -> Done {
    Done { rows: result.rows_affected(), last_id: 0 }
}

/// None is for ever here.
fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX).clamp(1, i32::MAX.into())
}

/// An insert that came to its end so much later, in microseconds, may have waited for the record to be deleted. Somebody else may have
/// begun and been forgotten meanwhile, with a higher fence: it gets a new one. Less is too short for three calls of somebody else.
const LONG_WAIT: i64 = 200;

impl super::Database for Postgres {}

impl Dialect for Postgres {
    const WORD: &'static str = "postgres";
    const PREFIXES: &'static [&'static str] = &["postgres:", "postgresql:"];
    const PARAMETERS: &'static [&'static str] = &[
        "sslmode",
        "ssl-mode",
        "sslrootcert",
        "ssl-root-cert",
        "ssl-ca",
        "sslcert",
        "ssl-cert",
        "sslkey",
        "ssl-key",
        "host",
        "hostaddr",
        "port",
        "dbname",
        "user",
        "password",
        "application_name",
        "options",
        "statement-cache-capacity",
    ];
    const MIGRATIONS: &'static [(&'static str, &'static str)] = &[
        ("0001_records.sql", include_str!("../../migrations/postgres/0001_records.sql")),
        ("0002_console.sql", include_str!("../../migrations/postgres/0002_console.sql")),
    ];
    const CATALOGUE: &'static str = "SELECT COUNT(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                                     WHERE n.nspname = current_schema() AND c.relname IN ({names})";
    const HEX: (&'static str, &'static str) = (r"'\x", "'::bytea");
    const BEGIN: &'static str = "BEGIN ISOLATION LEVEL READ COMMITTED";
    const NOW: Option<&'static str> = Some("(extract(epoch FROM clock_timestamp()) * 1000000)::bigint");

    const WIDE: &'static str = "::bigint";
    const UNHURRIED: Option<&'static str> =
        Some("SELECT set_config('lock_timeout', current_setting('onlyonce.lock_timeout'), TRUE)");

    fn statements(table: &Table) -> Statements {
        let channel = wakes::channel(table);
        let parts = Parts {
            // The clock is read once, for all the times of a record.
            insert: "INSERT INTO {table} (id, status, hash_rules, hash, fence, attempts, owner, began_over, lease_until, \
                     created_at, settled_at, expires_at, awaited, route, key_hash, scope_hash) \
                     SELECT $1, 0, $2, $3, now, 1, $4, 0, now + $5, now, 0, now + $6, FALSE, $7, $8, $9 \
                     FROM (SELECT {now} AS now{hurry}) AS clock ON CONFLICT (id) DO NOTHING \
                     RETURNING fence, {now} - fence",
            // A lock is waited for by what was set before it, also within a statement.
            hurry: ", set_config('onlyonce.lock_timeout', current_setting('lock_timeout'), TRUE), \
                    set_config('lock_timeout', $10::bigint::text, TRUE), \
                    set_config('idle_in_transaction_session_timeout', $11::bigint::text, TRUE)",
            unhurried: ", set_config('lock_timeout', current_setting('onlyonce.lock_timeout'), TRUE)",
            // A message costs a lock of the whole server at commit: it is sent only for a record that somebody waits for.
            wake: format!(
                "RETURNING CASE WHEN awaited THEN pg_notify('{channel}', encode(id, 'hex')) IS NULL END"
            ),
            skip_locked: "FOR UPDATE SKIP LOCKED",
            delete: "DELETE FROM {table}",
            listen: Some(
                "UPDATE {table} SET awaited = TRUE WHERE id = $1 AND fence = $2 AND status = 0 AND NOT awaited",
            ),
        };
        Statements::new::<Self>(table, &parts)
    }

    fn place(sql: &mut String, number: usize) {
        let _ = write!(sql, "${number}");
    }

    fn options(url: &str) -> Result<PgConnectOptions, sqlx::Error> {
        let options: PgConnectOptions = url.parse()?;
        Ok(options.options([("default_transaction_isolation", "read committed")]).disable_statement_logging())
    }

    fn pool_options() -> PoolOptions<Self> {
        PoolOptions::new()
    }

    by_name!(PgConnection, PgRow);

    fn meaning(error: &sqlx::Error) -> Meaning {
        let sqlx::Error::Database(said) = error else {
            return super::gone(error);
        };
        let code = said.code();
        match code.as_deref() {
            Some("23505") => Meaning::Duplicate,
            Some("55P03") => Meaning::Locked,
            Some("40001" | "40P01") => Meaning::GaveWay,
            Some("42P01" | "3F000") => Meaning::NoTable,
            Some("42501" | "25006") => Meaning::ReadOnly,
            // The transaction failed before, and the handler went on.
            Some("25P02") => Meaning::Constraint,
            Some("54000") => Meaning::TooLarge,
            Some(code) if code.starts_with("23") => Meaning::Constraint,
            Some("57014") => Meaning::Stopped,
            Some(code) if code.starts_with("08") || code.starts_with("57") || code.starts_with("25P03") => {
                Meaning::Gone
            }
            Some(code) if super::is_refusal(code) => Meaning::Refused,
            _ => Meaning::Other,
        }
    }

    async fn insert(
        connection: &mut PgConnection,
        statements: &Statements,
        mut arguments: Vec<Value>,
        inside: Inside,
    ) -> Result<Option<i64>, sqlx::Error> {
        let insert = match inside {
            Inside::Alone => &statements.insert,
            Inside::Transaction(Opening { times, .. }) => {
                arguments.extend([times.lock, times.idle].map(|span| Value::Int(millis(span))));
                &statements.claim
            }
        };
        let [id, .., owner, _, _, _, _, _] = &arguments[..9] else {
            unreachable!("an insert has nine arguments")
        };
        let ours = [id.clone(), owner.clone()];
        let rows = Self::rows(connection, insert.sql.clone(), arguments).await?;
        let Some(inserted) = rows.first() else { return Ok(None) };
        let (fence, waited) = (Self::int(inserted, 0)?, Self::int(inserted, 1)?);
        if waited < LONG_WAIT {
            return Ok(Some(fence));
        }
        let arguments = ours.into_iter().chain([Value::Int(fence)]).collect();
        let rows = Self::rows(connection, statements.raise.sql.clone(), arguments).await?;
        // If it is gone, whatever its fence is will not be taken.
        rows.first().map_or(Ok(Some(fence)), |row| Self::int(row, 0).map(Some))
    }

    fn begin(Opening { times, .. }: Opening) -> String {
        format!(
            "{}; SELECT set_config('onlyonce.lock_timeout', current_setting('lock_timeout'), TRUE); \
             SET LOCAL lock_timeout = {}; SET LOCAL idle_in_transaction_session_timeout = {}",
            Self::BEGIN,
            millis(times.lock),
            millis(times.idle)
        )
    }

    fn begin_to_insert(_: Opening) -> String {
        Self::BEGIN.to_owned()
    }

    async fn look(connection: &mut PgConnection) -> Result<Look, sqlx::Error> {
        let sql = "SELECT current_setting('synchronous_commit')::bytea, \
                   current_setting('default_transaction_isolation')::bytea, current_setting('fsync')::bytea";
        let rows = Self::rows(connection, sql.into_sql_str(), Vec::new()).await?;
        let said = |column| -> Result<String, sqlx::Error> {
            let found = rows.first().map(|row| Self::bytes(row, column)).transpose()?.flatten();
            Ok(String::from_utf8_lossy(&found.unwrap_or_default()).into_owned())
        };
        let mut concerns = Vec::new();
        if said(0)? == "off" || said(2)? == "off" {
            concerns.push(Concern::NotDurable("synchronous_commit or fsync is off"));
        }
        let isolation = said(1)?;
        let unusable = (isolation != "read committed").then(|| {
            format!(
                "its connections use the isolation level {isolation:?}, and onlyonce needs \"read committed\": set \
                 default_transaction_isolation for them (in the connection options, or by ALTER ROLE)"
            )
        });
        Ok(Look { flavour: Flavour::Usual, concerns, unusable, largest: None })
    }

    async fn migrate(connection: &mut PgConnection, table: &Table) -> Result<(), sqlx::Error> {
        // Each file is sent as one message, which is one transaction.
        sqlx::query("SELECT pg_advisory_lock(7881411)").execute(&mut *connection).await?;
        let migrated = migrate::missing::<Self>(connection, table).await;
        sqlx::query("SELECT pg_advisory_unlock(7881411)").execute(&mut *connection).await?;
        migrated
    }

    fn listen(pool: &Pool<Self>, table: &Table) -> Option<Wakes> {
        Some(wakes::listen(pool.clone(), wakes::channel(table)))
    }
}
