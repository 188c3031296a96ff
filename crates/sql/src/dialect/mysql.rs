//! MySQL 8 and MariaDB 10.6 or newer, with the SQL that both speak.

use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlDatabaseError, MySqlQueryResult, MySqlRow};
use sqlx::pool::PoolOptions;
use sqlx::{ConnectOptions as _, MySql, SqlSafeStr as _};

use super::{Dialect, Done, Flavour, Inside, Look, Meaning, Opening, bind_by_name, by_name};
use crate::Concern;
use crate::migrate;
use crate::statements::{Parts, Statements, safe};
use crate::table::Table;
use crate::value::Value;

bind_by_name!(MySql);

fn done(result: MySqlQueryResult) -> Done {
    Done { rows: result.rows_affected(), last_id: result.last_insert_id() }
}

const UNHURRIED: &str = "SET SESSION innodb_lock_wait_timeout = DEFAULT";

/// Whether a session may write outside of transactions that say so: called one thing by MariaDB, another by MySQL, and each reads
/// its own comment.
macro_rules! read_only {
    () => {
        "/*M!tx_read_only*//*!80000 transaction_read_only*/"
    };
}

/// The beginning of a claim, with what else the session is told. Its transaction may write, and nothing after it: a deadlock ends a
/// transaction here without ending the session, and a handler that goes on after one would else write, statement by
/// statement, what no record tells of.
fn claim(settings: &str) -> String {
    const READ_ONLY: &str = read_only!();
    format!(
        "SET {settings}, @onlyonce_read_only = @@SESSION.{READ_ONLY}; \
         SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; SET SESSION {READ_ONLY} = 1"
    )
}

/// What is meant by the number and the SQLSTATE of an error.
fn means(number: u16, state: Option<&str>) -> Meaning {
    match number {
        1062 => Meaning::Duplicate,
        1205 | 3572 => Meaning::Locked,
        // 3101: Galera and group replication, at commit.
        1213 | 3101 => Meaning::GaveWay,
        1146 | 1049 => Meaning::NoTable,
        1044 | 1142 | 1143 | 1290 | 1792 | 1836 => Meaning::ReadOnly,
        1048 | 1216 | 1217 | 1451 | 1452 | 3819 | 4025 => Meaning::Constraint,
        1153 | 1301 => Meaning::TooLarge,
        1317 => Meaning::Stopped,
        1053 | 1077 | 1152 | 1158..=1161 | 1184 | 1927 | 4031 => Meaning::Gone,
        // Words of a client about its server. Here they come from a proxy (ProxySQL, MaxScale) that lost the server behind it.
        2002..=2006 | 2013 | 2055 => Meaning::Gone,
        // The table is full, which has no class of its own.
        1114 => Meaning::Refused,
        _ if state.is_some_and(super::is_refusal) => Meaning::Refused,
        _ => Meaning::Other,
    }
}

fn seconds(span: Duration) -> u128 {
    span.as_millis().div_ceil(1000).clamp(1, 31_536_000)
}

impl super::Database for MySql {}

impl Dialect for MySql {
    const WORD: &'static str = "mysql";
    const PREFIXES: &'static [&'static str] = &["mysql:", "mariadb:"];
    const PARAMETERS: &'static [&'static str] = &[
        "ssl-mode",
        "sslmode",
        "ssl-ca",
        "sslca",
        "ssl-cert",
        "sslcert",
        "ssl-key",
        "sslkey",
        "charset",
        "collation",
        "socket",
        "timezone",
        "time-zone",
        "statement-cache-capacity",
    ];
    const MIGRATIONS: &'static [(&'static str, &'static str)] = &[
        ("0001_records.sql", include_str!("../../migrations/mysql/0001_records.sql")),
        ("0002_console.sql", include_str!("../../migrations/mysql/0002_console.sql")),
    ];
    // Indexes are made with their tables here.
    const CATALOGUE: &'static str = "SELECT CAST(COUNT(*) AS SIGNED) FROM information_schema.TABLES \
                                     WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({names})";
    const HEX: (&'static str, &'static str) = ("x'", "'");
    const BEGIN: &'static str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION";
    const AFTERWARDS: Option<&'static str> = Some(concat!(
        "ROLLBACK; SET SESSION ",
        read_only!(),
        " = @onlyonce_read_only; SET SESSION innodb_lock_wait_timeout = DEFAULT"
    ));
    const UNHURRIED: Option<&'static str> = Some(UNHURRIED);
    const COMMIT: Option<&'static str> =
        Some(concat!("COMMIT; SET SESSION ", read_only!(), " = @onlyonce_read_only"));
    // In UTC, because an hour of the session's time zone may come twice.
    const NOW: Option<&'static str> = Some("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))");

    fn statements(table: &Table) -> Statements {
        let parts = Parts {
            // LAST_INSERT_ID(…) sends the fence back with the reply. No ON DUPLICATE KEY UPDATE: the driver asks for found
            // rows, so that an insert and a no-op would look the same.
            insert: "INSERT INTO {table} (id, status, hash_rules, hash, fence, attempts, owner, began_over, lease_until, \
                     created_at, settled_at, expires_at, route, key_hash, scope_hash) \
                     VALUES ($1, 0, $2, $3, LAST_INSERT_ID({now}), 1, $4, 0, {now} + $5, {now}, 0, {now} + $6, $7, $8, $9)",
            hurry: "",
            unhurried: "",
            wake: String::new(),
            skip_locked: "FOR UPDATE SKIP LOCKED",
            // Left to itself the server may pass over the whole table, which locks the rows of other sweeps for a moment: they would not find
            // those, or meet in a deadlock. A hint is allowed in this form only.
            delete: "DELETE {table} FROM {table} FORCE INDEX (PRIMARY)",
            listen: None,
        };
        Statements::new::<Self>(table, &parts)
    }

    fn place(sql: &mut String, _: usize) {
        sql.push('?');
    }

    fn options(url: &str) -> Result<MySqlConnectOptions, sqlx::Error> {
        let options: MySqlConnectOptions = url.parse()?;
        Ok(options.disable_statement_logging())
    }

    fn pool_options() -> PoolOptions<Self> {
        PoolOptions::new()
    }

    by_name!(MySqlConnection, MySqlRow);

    fn meaning(error: &sqlx::Error) -> Meaning {
        let sqlx::Error::Database(said) = error else {
            return super::gone(error);
        };
        let said = said.try_downcast_ref::<MySqlDatabaseError>();
        said.map_or(Meaning::Other, |said| means(said.number(), said.code()))
    }

    async fn insert(
        connection: &mut MySqlConnection,
        statements: &Statements,
        arguments: Vec<Value>,
        inside: Inside,
    ) -> Result<Option<i64>, sqlx::Error> {
        let inserted = match inside {
            Inside::Alone => Self::run(connection, statements.insert.sql.clone(), arguments).await,
            // The claim may wait for a moment only; the handler's own statements wait as they always do.
            Inside::Transaction(Opening { flavour: Flavour::MariaDb, times }) => {
                let (lock, insert) = (seconds(times.lock), statements.insert.sql.as_str());
                let sql = format!("SET STATEMENT innodb_lock_wait_timeout = {lock} FOR {insert}");
                Self::run(connection, safe(sql), arguments).await
            }
            Inside::Transaction(_) => {
                let inserted = Self::run(connection, statements.insert.sql.clone(), arguments).await;
                if inserted.is_ok() {
                    Self::raw(connection, UNHURRIED.into_sql_str()).await?;
                }
                inserted
            }
        };
        match inserted {
            Ok(done) => Ok(i64::try_from(done.last_id).ok()),
            Err(error) if Self::meaning(&error) == Meaning::Duplicate => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn begin(Opening { flavour, times }: Opening) -> String {
        let idle = match flavour {
            Flavour::MariaDb => "idle_transaction_timeout",
            // It has no time for idle transactions alone.
            Flavour::Usual => "wait_timeout",
        };
        let (lock, span) = (seconds(times.lock), seconds(times.idle));
        claim(&format!("SESSION innodb_lock_wait_timeout = {lock}, SESSION {idle} = {span}"))
    }

    fn begin_to_insert(opening: Opening) -> String {
        match opening.flavour {
            Flavour::MariaDb => {
                let span = seconds(opening.times.idle);
                claim(&format!("SESSION idle_transaction_timeout = {span}"))
            }
            Flavour::Usual => Self::begin(opening),
        }
    }

    async fn look(connection: &mut MySqlConnection) -> Result<Look, sqlx::Error> {
        let sql = "SELECT CAST(VERSION() AS BINARY), CAST(@@innodb_flush_log_at_trx_commit AS SIGNED), \
                   CAST(@@binlog_format AS BINARY), CAST(@@log_bin AS SIGNED), CAST(@@autocommit AS SIGNED), \
                   CAST(@@max_allowed_packet AS SIGNED)";
        let rows = Self::rows(connection, sql.into_sql_str(), Vec::new()).await?;
        let Some(row) = rows.first() else { return Err(sqlx::Error::RowNotFound) };
        let text = |column| -> Result<String, sqlx::Error> {
            Ok(String::from_utf8_lossy(&Self::bytes(row, column)?.unwrap_or_default()).into_owned())
        };
        let flavour = if text(0)?.contains("MariaDB") { Flavour::MariaDb } else { Flavour::Usual };
        let mut concerns = Vec::new();
        if Self::int(row, 1)? != 1 {
            concerns.push(Concern::NotDurable("innodb_flush_log_at_trx_commit is not 1"));
        }
        let unusable = if Self::int(row, 4)? == 0 {
            Some(
                "its connections do not commit by themselves, so records would be lost: set autocommit to 1 for them",
            )
        } else if Self::int(row, 3)? == 1 && text(2)? == "STATEMENT" {
            Some(
                "it writes its binary log by statement, which forbids the isolation level \"read committed\" that onlyonce \
                 needs: set binlog_format to ROW or MIXED",
            )
        } else {
            None
        };
        let unusable = unusable.map(str::to_owned);
        let largest = usize::try_from(Self::int(row, 5)?).ok();
        Ok(Look { flavour, concerns, unusable, largest })
    }

    fn was_there(error: &sqlx::Error) -> bool {
        let sqlx::Error::Database(said) = error else { return false };
        said.try_downcast_ref::<MySqlDatabaseError>().is_some_and(|said| said.number() == 1061)
    }

    async fn migrate(connection: &mut MySqlConnection, table: &Table) -> Result<(), sqlx::Error> {
        // Instances that start together migrate one after the other.
        sqlx::query("SELECT GET_LOCK('onlyonce_migrate', 60)").execute(&mut *connection).await?;
        let migrated = migrate::missing::<Self>(connection, table).await;
        sqlx::query("SELECT RELEASE_LOCK('onlyonce_migrate')").execute(&mut *connection).await?;
        migrated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_proxy_says_of_its_server_is_no_refusal() {
        // ProxySQL and MaxScale.
        for number in [2013, 2003, 2006, 1927] {
            assert_eq!(means(number, Some("HY000")), Meaning::Gone, "{number}");
        }
        // ProxySQL out of connections, Vitess, a commit that failed, and what nobody knows.
        for (number, state) in [(9001, "HY000"), (1105, "HY000"), (1180, "HY000"), (1047, "08S01"), (7, "")] {
            assert_eq!(means(number, Some(state)), Meaning::Other, "{number}");
        }
        assert_eq!(means(7, None), Meaning::Other);
    }

    #[test]
    fn what_a_server_says_no_to_is_a_refusal() {
        let refused = [
            (1064, "42000"), // syntax
            (1054, "42S22"), // no such column
            (1227, "42000"), // no right to
            (1406, "22001"), // too long
            (1264, "22003"), // out of range
            (1045, "28000"), // no such user
            (1046, "3D000"), // no database
            (1568, "25001"), // within a transaction
            (1114, "HY000"), // full
        ];
        for (number, state) in refused {
            assert_eq!(means(number, Some(state)), Meaning::Refused, "{number}");
        }
        assert_eq!(means(1048, Some("23000")), Meaning::Constraint);
        assert_eq!(means(1205, Some("HY000")), Meaning::Locked);
    }
}
