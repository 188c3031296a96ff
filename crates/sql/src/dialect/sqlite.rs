//! SQLite, in a file. It runs in this process, so the time of its records is told by this machine: see [`clock`](crate::clock).

use std::fmt::Write as _;
use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteQueryResult, SqliteRow,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, SqlSafeStr as _, Sqlite};

use super::{Dialect, Done, Flavour, Inside, Look, Meaning, Opening, bind_by_name, by_name};
use crate::Concern;
use crate::migrate;
use crate::place;
use crate::statements::{Parts, Statements};
use crate::table::Table;
use crate::value::Value;

bind_by_name!(Sqlite);

fn done(result: SqliteQueryResult) -> Done {
    Done { rows: result.rows_affected(), last_id: 0 }
}

impl super::Database for Sqlite {}

impl Dialect for Sqlite {
    const WORD: &'static str = "sqlite";
    const PREFIXES: &'static [&'static str] = &["sqlite:"];
    const PARAMETERS: &'static [&'static str] = &["mode", "cache", "immutable", "vfs"];
    const MIGRATIONS: &'static [(&'static str, &'static str)] = &[
        ("0001_records.sql", include_str!("../../migrations/sqlite/0001_records.sql")),
        ("0002_console.sql", include_str!("../../migrations/sqlite/0002_console.sql")),
        ("0003_clock.sql", include_str!("../../migrations/sqlite/0003_clock.sql")),
    ];
    const CATALOGUE: &'static str = "SELECT COUNT(*) FROM sqlite_master WHERE name IN ({names})";
    const HEX: (&'static str, &'static str) = ("x'", "'");
    // Its own clock has milliseconds only, too few for fences that rise.
    const BEGIN: &'static str = "BEGIN IMMEDIATE";
    const NOW: Option<&'static str> = None;

    // Without a transaction COMMIT and ROLLBACK fail here.
    const REOPEN: Option<&'static str> = Some("BEGIN");
    const IS_LOCAL: bool = true;
    // There is one writer at a time; a queue of ours is fairer than its busy handler.
    const WRITERS: Option<usize> = Some(1);

    fn statements(table: &Table) -> Statements {
        let parts = Parts {
            insert: "INSERT INTO {table} (id, status, hash_rules, hash, fence, attempts, owner, began_over, lease_until, \
                     created_at, settled_at, expires_at, route, key_hash, scope_hash) \
                     VALUES ($1, 0, $2, $3, {now}, 1, $4, 0, {now} + $5, {now}, 0, {now} + $6, $7, $8, $9) \
                     ON CONFLICT (id) DO NOTHING RETURNING fence",
            hurry: "",
            unhurried: "",
            wake: String::new(),
            skip_locked: "",
            delete: "DELETE FROM {table}",
            listen: None,
        };
        Statements::new::<Self>(table, &parts)
    }

    fn place(sql: &mut String, number: usize) {
        let _ = write!(sql, "?{number}");
    }

    fn is_in_memory(url: &str) -> bool {
        let parsed = url.parse::<SqliteConnectOptions>();
        // `:memory:` in any spelling is called `file:…` by the driver; and a name that begins so may say anything to SQLite itself.
        let named = parsed.is_ok_and(|options| {
            let name = options.get_filename().to_string_lossy();
            name == ":memory:" || name.starts_with("file:")
        });
        named || place::parameters(url).any(|(name, value)| name == "mode" && value == "memory")
    }

    fn options(url: &str) -> Result<SqliteConnectOptions, sqlx::Error> {
        let options: SqliteConnectOptions = url.parse()?;
        if options.get_filename().as_os_str().is_empty() {
            let why =
                "it names no file, so that its records would end with the process: write sqlite:./records.db";
            return Err(sqlx::Error::Configuration(why.into()));
        }
        Ok(options
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(10))
            .disable_statement_logging())
    }

    fn pool_options() -> PoolOptions<Self> {
        PoolOptions::new()
    }

    by_name!(SqliteConnection, SqliteRow);

    fn meaning(error: &sqlx::Error) -> Meaning {
        let sqlx::Error::Database(said) = error else {
            return super::gone(error);
        };
        let code: i32 = said.code().and_then(|code| code.parse().ok()).unwrap_or(0);
        match (code, code & 0xff) {
            (1555 | 2067, _) => Meaning::Duplicate,
            // BUSY and LOCKED.
            (_, 5 | 6) => Meaning::Locked,
            (_, 8) => Meaning::ReadOnly,
            (_, 9) => Meaning::Stopped,
            (_, 18) => Meaning::TooLarge,
            (_, 19) => Meaning::Constraint,
            _ if said.message().contains("no such table") => Meaning::NoTable,
            // Nobody stands between us and it who could have lost an answer.
            _ => Meaning::Refused,
        }
    }

    async fn insert(
        connection: &mut SqliteConnection,
        statements: &Statements,
        arguments: Vec<Value>,
        _: Inside,
    ) -> Result<Option<i64>, sqlx::Error> {
        let rows = Self::rows(connection, statements.insert.sql.clone(), arguments).await?;
        rows.first().map(|row| Self::int(row, 0)).transpose()
    }

    fn begin(_: Opening) -> String {
        // A transaction that reads first and writes later could not wait for its turn.
        "BEGIN IMMEDIATE".to_owned()
    }

    async fn look(connection: &mut SqliteConnection) -> Result<Look, sqlx::Error> {
        let rows = Self::rows(connection, "PRAGMA synchronous".into_sql_str(), Vec::new()).await?;
        let synchronous = rows.first().map(|row| Self::int(row, 0)).transpose()?.unwrap_or(2);
        let mut concerns = Vec::new();
        let rows = Self::rows(
            connection,
            "SELECT CAST(file AS BLOB) FROM pragma_database_list WHERE name = 'main'".into_sql_str(),
            Vec::new(),
        );
        let file = rows.await?.first().map(|row| Self::bytes(row, 0)).transpose()?.flatten();
        if file.is_none_or(|file| file.is_empty()) {
            concerns.push(Concern::NotDurable("the database is in memory, or in a file that is temporary"));
        }
        if synchronous < 2 {
            concerns.push(Concern::NotDurable("PRAGMA synchronous is below FULL"));
        }
        Ok(Look { flavour: Flavour::Usual, concerns, unusable: None, largest: None })
    }

    async fn migrate(connection: &mut SqliteConnection, table: &Table) -> Result<(), sqlx::Error> {
        let mut transaction = sqlx::Connection::begin_with(connection, "BEGIN IMMEDIATE").await?;
        migrate::missing::<Self>(&mut transaction, table).await?;
        transaction.commit().await
    }
}
