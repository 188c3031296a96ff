//! MySQL 8 and MariaDB 10.6 or newer.

use std::time::Duration;

use sqlx::mysql::{MySqlArguments, MySqlConnection, MySqlDatabaseError, MySqlRow};
use sqlx::{Error, MySql};

use super::dialect::{Dialect, Lock, Speak, common};
use super::error::Fault;

impl Dialect for MySql {}

impl Speak for MySql {
    const QUOTE: char = '`';
    const NOW: &'static str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    const INTEGER: &'static str = "SIGNED";
    const TEXT: &'static str = "CHAR";
    const ON_CONFLICT: bool = false;
    const ROW_LOCKS: bool = true;
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
        let found = match patience {
            Some(patience) => wait(connection, sql, arguments, patience).await,
            None => Self::fetch(connection, sql, arguments).await,
        };
        match found {
            Ok(rows) => Ok(Some(rows)),
            // Only the statement is undone.
            Err(error) if Self::fault(&error) == Fault::LockTimeout => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn migrate(connection: &mut Self::Connection) -> Result<(), Error> {
        Self::script(connection, Self::SCHEMA.to_owned()).await
    }
}

/// Waits for at most this long; whole seconds are all that there is. On MariaDB the time belongs to the statement, so that nothing is
/// left behind by a guard that is dropped half-way. MySQL has no word for that: there the time of the session is changed and put
/// back; if nobody came to put it back, the next who waits on this connection does.
async fn wait(
    connection: &mut MySqlConnection,
    sql: String,
    arguments: MySqlArguments,
    patience: Duration,
) -> Result<Vec<MySqlRow>, Error> {
    let seconds = patience.as_millis().div_ceil(1000).max(1);
    let timed = format!("SET STATEMENT innodb_lock_wait_timeout = {seconds} FOR {sql}");
    match MySql::fetch(connection, timed, arguments.clone()).await {
        Err(error) if number(&error) == Some(SYNTAX) => {}
        found => return found,
    }
    let set = format!(
        "SET @onlyonce_wait = COALESCE(@onlyonce_wait, @@SESSION.innodb_lock_wait_timeout); \
         SET SESSION innodb_lock_wait_timeout = {seconds}"
    );
    MySql::script(connection, set).await?;
    let found = MySql::fetch(connection, sql, arguments).await;
    let restore = "SET SESSION innodb_lock_wait_timeout = @onlyonce_wait; SET @onlyonce_wait = NULL";
    MySql::script(connection, restore.to_owned()).await?;
    found
}

/// What a server says that does not know a word.
const SYNTAX: u16 = 1064;

fn number(error: &Error) -> Option<u16> {
    Some(error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?.number())
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
    use super::key_of;

    #[test]
    fn the_key_is_the_last_thing_in_quotes() {
        assert_eq!(key_of("Duplicate entry '002' for key 'order.un_code'"), Some("un_code"));
        assert_eq!(key_of("Duplicate entry '002' for key 'un_code'"), Some("un_code"));
        assert_eq!(key_of("Duplicate entry 'a' for key 'b'' for key 'PRIMARY'"), Some("PRIMARY"));
        assert_eq!(key_of("Doppelter Eintrag '002' für Schlüssel 'un_code'"), Some("un_code"));
        assert_eq!(key_of("Duplicate entry"), None);
    }
}
