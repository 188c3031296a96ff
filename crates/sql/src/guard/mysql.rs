//! MySQL 8 and MariaDB 10.6 or newer.

use std::time::Duration;

use sqlx::mysql::MySqlDatabaseError;
use sqlx::{Error, MySql};

use super::dialect::{Dialect, Lock, Speak, common};
use super::error::Fault;
use crate::migrate::is_made;

impl Dialect for MySql {}

impl Speak for MySql {
    const QUOTE: char = '`';
    const NOW: &'static str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    const INTEGER: &'static str = "SIGNED";
    const TEXT: &'static str = "CHAR";
    const ON_CONFLICT: bool = false;
    const ROW_LOCKS: bool = true;
    // Under REPEATABLE READ it sees the rows of the first read.
    const SECOND_LOOK: bool = false;
    const WRITES_IN_WITH: bool = false;
    // Under REPEATABLE READ a plain SELECT would look into the past. `FOR SHARE` is not known to MariaDB.
    const LATEST: &'static str = " LOCK IN SHARE MODE";
    const FOR_UPDATE: &'static str = " FOR UPDATE";
    const SCHEMA: &'static str = include_str!("../../migrations/mysql/guards.sql");

    common!();

    fn fault(error: &Error) -> Fault {
        let Some(error) = error.as_database_error() else { return Fault::Other };
        let Some(error) = error.try_downcast_ref::<MySqlDatabaseError>() else { return Fault::Other };
        match error.number() {
            1062 | 1586 => Fault::Duplicate(key_of(error.message()).map(str::to_owned)),
            1213 | 3101 => Fault::RolledBack, // 3101: Galera and group replication
            1205 | 3572 => Fault::LockTimeout,
            1146 | 1054 => Fault::MissingTable,
            1142 | 1143 | 1290 | 1792 | 1836 => Fault::ReadOnly,
            _ => Fault::Other,
        }
    }

    async fn lock(
        connection: &mut Self::Connection,
        _table: &str,
        mut sql: String,
        arguments: Self::Arguments,
        how: Lock,
        patience: Option<Duration>,
    ) -> Result<Option<Vec<Self::Row>>, Error> {
        if how == Lock::SkipLocked {
            sql.push_str(" FOR UPDATE SKIP LOCKED");
            return Self::fetch(connection, sql, arguments).await.map(Some);
        }
        sql.push_str(" FOR UPDATE");
        match patience {
            // Its error (3572, on MariaDB 1205) is that of a lock that was waited for in vain.
            Some(Duration::ZERO) => sql.push_str(" NOWAIT"),
            Some(patience) => sql = within(patience, &sql),
            None => {}
        }
        match Self::fetch(connection, sql, arguments).await {
            Ok(rows) => Ok(Some(rows)),
            Err(error) if patience.is_some() && is_over(&error) => Ok(None),
            // Only the statement is undone.
            Err(error) if Self::fault(&error) == Fault::LockTimeout => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn unique_columns(
        connection: &mut Self::Connection,
        table: &str,
        index: &str,
    ) -> Result<Option<Vec<String>>, Error> {
        let (schema, table) =
            table.split_once('.').map_or((None, table), |(schema, table)| (Some(schema), table));
        let sql = "SELECT CAST(COLUMN_NAME AS CHAR) FROM information_schema.STATISTICS \
                   WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? AND INDEX_NAME = ? AND NON_UNIQUE = 0";
        let query = sqlx::query_scalar(sql).bind(schema).bind(table).bind(index);
        let columns: Vec<String> = query.fetch_all(connection).await?;
        Ok((!columns.is_empty()).then_some(columns))
    }

    async fn migrate(connection: &mut Self::Connection) -> Result<(), Error> {
        if is_made::<Self>(connection, Self::SCHEMA).await? {
            return Ok(());
        }
        Self::script(connection, Self::SCHEMA.to_owned()).await
    }
}

/// The statement with a time of its own, so that nothing is left behind on the connection by a guard that is dropped half-way.
/// MariaDB has a word for that, in whole seconds, and reads it in a comment that MySQL passes over; MySQL has a hint in
/// milliseconds.
fn within(patience: Duration, select: &str) -> String {
    let millis = patience.as_millis().clamp(1, u32::MAX.into());
    let (seconds, what) = (millis.div_ceil(1000), select.strip_prefix("SELECT").unwrap_or(select));
    format!(
        "/*M! SET STATEMENT innodb_lock_wait_timeout = {seconds} FOR */ SELECT /*+ MAX_EXECUTION_TIME({millis}) */{what}"
    )
}

/// Whether the time of the statement is over; a server that knows the hint says it with another word than a lock that is waited
/// for in vain (3024 MySQL, 1969 MariaDB).
fn is_over(error: &Error) -> bool {
    let said = error.as_database_error().and_then(|said| said.try_downcast_ref::<MySqlDatabaseError>());
    matches!(said.map(MySqlDatabaseError::number), Some(3024 | 1969))
}

/// The name of the key in "Duplicate entry '…' for key 'orders.un_code'": the last thing in quotes, whatever the language
/// of the server. MySQL puts the table before it, MariaDB does not.
fn key_of(message: &str) -> Option<&str> {
    let (before, _) = message.rsplit_once('\'')?;
    let (_, key) = before.rsplit_once('\'')?;
    Some(key.rsplit_once('.').map_or(key, |(_, name)| name))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{key_of, within};

    #[test]
    fn a_bounded_wait_is_part_of_its_statement() {
        let timed = within(Duration::from_millis(1500), "SELECT * FROM `stock` FOR UPDATE");
        let lock = "/*M! SET STATEMENT innodb_lock_wait_timeout = 2 FOR */";
        assert_eq!(timed, format!("{lock} SELECT /*+ MAX_EXECUTION_TIME(1500) */ * FROM `stock` FOR UPDATE"));
    }

    #[test]
    fn the_key_is_the_last_thing_in_quotes() {
        assert_eq!(key_of("Duplicate entry '002' for key 'order.un_code'"), Some("un_code"));
        assert_eq!(key_of("Duplicate entry '002' for key 'un_code'"), Some("un_code"));
        assert_eq!(key_of("Duplicate entry 'a' for key 'b'' for key 'PRIMARY'"), Some("PRIMARY"));
        assert_eq!(key_of("Doppelter Eintrag '002' für Schlüssel 'un_code'"), Some("un_code"));
        assert_eq!(key_of("Duplicate entry"), None);
    }
}
