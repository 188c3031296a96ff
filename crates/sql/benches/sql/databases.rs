//! The three databases, as far as they are measured.

use std::path::PathBuf;
use std::time::Duration;

use onlyonce_sql::{Database, MySql, Postgres, SqlStore, Sqlite};
use sqlx::{AssertSqlSafe, Pool, Transaction};

/// How many records are filled in by one transaction.
const CHUNK: u64 = 500_000;

/// Which records are filled in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Kept,
    Expired,
}

#[async_trait::async_trait]
pub(crate) trait Measured: Database {
    const LABEL: &'static str;
    fn url() -> String;
    async fn say(pool: &Pool<Self>, sql: String);
    async fn business(connection: &mut Self::Connection, table: &str);
    async fn bare(pool: &Pool<Self>, table: &str);
    /// Article 004: three transactions, with the row locked in two of them.
    async fn article(pool: &Pool<Self>, table: &str, key: &str);
    /// The record is written once, as the last statement before COMMIT: the least that any record in the transaction costs.
    async fn at_commit(pool: &Pool<Self>, table: &str);
    /// Completed records, spread evenly among all that there could be.
    async fn fill(pool: &Pool<Self>, table: &str, records: u64, kind: Kind);
    /// Does now what the database would else do later, beside the measurement.
    async fn rest(pool: &Pool<Self>, table: &str);
    /// Where it keeps a table that is dropped, if not on a server.
    fn folder(pool: &Pool<Self>) -> Option<PathBuf>;
}

macro_rules! measured {
    ($database:ty, $label:literal, $url:expr, $one:literal, $two:literal, $lock:literal, $id:literal, $random:literal,
     $numbers:expr, $more:literal, $value:literal, $begin:literal, $now:literal, $roomy:literal, $rest:expr, $folder:expr) => {
        #[async_trait::async_trait]
        impl Measured for $database {
            const LABEL: &'static str = $label;

            fn url() -> String {
                $url
            }

            async fn say(pool: &Pool<Self>, sql: String) {
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.unwrap();
            }

            async fn business(connection: &mut Self::Connection, table: &str) {
                let sql = format!(concat!("INSERT INTO business_{} (amount) VALUES (", $one, ")"), table);
                sqlx::query(AssertSqlSafe(sql)).bind(42_i64).execute(connection).await.unwrap();
            }

            async fn bare(pool: &Pool<Self>, table: &str) {
                let mut transaction = pool.begin_with($begin).await.unwrap();
                Self::business(&mut transaction, table).await;
                transaction.commit().await.unwrap();
            }

            async fn article(pool: &Pool<Self>, table: &str, key: &str) {
                let run = async |transaction: &mut Transaction<'static, Self>, sql: String, two: bool| {
                    let query = sqlx::query(AssertSqlSafe(sql)).bind(key.to_owned());
                    let query = if two { query.bind("0123456789abcdef".repeat(4)) } else { query };
                    query.fetch_all(&mut **transaction).await.unwrap();
                };
                let find = format!(concat!("SELECT status, request_hash FROM article_{} WHERE idem_key = ", $one), table);
                let lock = format!("{find} {}", $lock);
                let insert = format!(
                    concat!("INSERT INTO article_{} (idem_key, request_hash, status) VALUES (", $one, ", ", $two, ", 'IN_PROGRESS')"),
                    table
                );
                let done = format!(
                    concat!("UPDATE article_{} SET status = 'COMPLETED', response_json = '{{\"paid\":42}}' WHERE idem_key = ", $one),
                    table
                );
                let mut transaction = pool.begin_with($begin).await.unwrap();
                run(&mut transaction, find, false).await;
                run(&mut transaction, insert, true).await;
                run(&mut transaction, lock.clone(), false).await;
                transaction.commit().await.unwrap();
                Self::bare(pool, table).await;
                let mut transaction = pool.begin_with($begin).await.unwrap();
                run(&mut transaction, lock, false).await;
                run(&mut transaction, done, false).await;
                transaction.commit().await.unwrap();
            }

            async fn at_commit(pool: &Pool<Self>, table: &str) {
                let mut transaction = pool.begin_with($begin).await.unwrap();
                Self::business(&mut transaction, table).await;
                let record = format!(
                    concat!(
                        "INSERT INTO {} (id, status, hash_rules, hash, fence, attempts, owner, began_over, lease_until, ",
                        "created_at, settled_at, expires_at, route, key_hash, scope_hash, answer", $more, ") ",
                        "SELECT ?, 1, 1, ?, now, 1, ?, 0, now, now, now, now + 86400000000, ?, ?, ?, ?", $value, " FROM (SELECT ", $now, " AS now) AS clock"
                    ),
                    table
                );
                let random = |bytes: usize| rand::random::<[u8; 32]>()[..bytes].to_vec();
                let query = sqlx::query(AssertSqlSafe(numbered::<Self>(&record)));
                let query = query.bind(random(32)).bind(random(32)).bind(random(16)).bind(b"pay".to_vec());
                let query = query.bind(random(16)).bind(random(16)).bind(b"42".to_vec());
                query.execute(&mut *transaction).await.unwrap();
                transaction.commit().await.unwrap();
            }

            async fn fill(pool: &Pool<Self>, table: &str, records: u64, kind: Kind) {
                // One after the other, and the expired ones before all others.
                let (created, expires) = match kind {
                    Kind::Kept => ("1700000000000000 + n", "4000000000000000 + n"),
                    Kind::Expired => ("n", "n + 1"),
                };
                let mut connection = pool.acquire().await.unwrap();
                sqlx::raw_sql($roomy).execute(&mut *connection).await.unwrap();
                let numbers: fn(u64, u64) -> String = $numbers;
                // In the order of their ids, because a tree does not tell how it grew, and grows faster so.
                let step = (1_u64 << 56) / records;
                for from in (0..records).step_by(CHUNK as usize) {
                    let sql = format!(
                        concat!(
                            "INSERT INTO {} (id, status, hash_rules, hash, fence, attempts, owner, began_over, lease_until, ",
                            "created_at, settled_at, expires_at, route, key_hash, scope_hash, answer", $more, ") ",
                            "SELECT ", $id, ", 1, 1, ", $random, ", 1, 1, substr(", $random, ", 1, 16), 0, 1, {}, 1, {}, ",
                            "substr(", $random, ", 1, 9), substr(", $random, ", 1, 16), substr(", $random, ", 1, 16), ",
                            $random, $value, " FROM {}"
                        ),
                        table, step, created, expires, numbers(from, CHUNK.min(records - from))
                    );
                    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *connection).await.unwrap();
                }
                connection.close().await.unwrap();
            }

            async fn rest(pool: &Pool<Self>, table: &str) {
                let sql: fn(&str) -> String = $rest;
                Self::say(pool, sql(table)).await;
            }

            fn folder(pool: &Pool<Self>) -> Option<PathBuf> {
                let folder: fn(&Pool<Self>) -> Option<PathBuf> = $folder;
                folder(pool)
            }
        }
    };
}

fn served(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run `cargo xtask bench`, or `cargo xtask services` and set what it prints"
        )
    })
}

measured!(
    Postgres,
    "PostgreSQL",
    served("ONLYONCE_TEST_POSTGRES_URL"),
    "$1",
    "$2",
    "FOR UPDATE",
    "decode(lpad(to_hex(n * {}), 14, '0'), 'hex') || substr(sha256((random()::text || n::text)::bytea), 1, 25)",
    "sha256((random()::text || n::text)::bytea)",
    |from, n| format!("generate_series({from}::bigint, {}) AS numbers(n)", from + n - 1),
    ", awaited",
    ", FALSE",
    "BEGIN",
    "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    "SELECT 1",
    |table| format!("VACUUM ANALYZE {table}"),
    |_| None
);
measured!(
    MySql,
    "MySQL",
    served("ONLYONCE_TEST_MYSQL_URL"),
    "?",
    "?",
    "FOR UPDATE",
    "CONCAT(UNHEX(LPAD(HEX(n * {}), 14, '0')), substr(UNHEX(SHA2(CONCAT(RAND(), n), 256)), 1, 25))",
    "UNHEX(SHA2(CONCAT(RAND(), n), 256))",
    |from, n| format!(
        "(SELECT {from} + a.n + 1000 * b.n AS n FROM {THOUSAND} AS b CROSS JOIN {THOUSAND} AS a \
         WHERE a.n + 1000 * b.n < {n} ORDER BY n LIMIT {n}) AS numbers"
    ),
    "",
    "",
    "BEGIN",
    "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    "SELECT 1",
    |table| format!("ANALYZE TABLE {table}"),
    |_| None
);
measured!(
    Sqlite,
    "SQLite",
    format!("sqlite://{}", tempfile::tempdir().unwrap().keep().join("bench.db").display()),
    "?",
    "?",
    "",
    "unhex(printf('%014x', n * {}) || hex(randomblob(25)))",
    "randomblob(32)",
    |from, n| format!(
        "(WITH RECURSIVE numbers(n) AS (SELECT {from} UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {}) \
         SELECT n FROM numbers)",
        from + n
    ),
    "",
    "",
    "BEGIN IMMEDIATE",
    "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
    "PRAGMA cache_size = -1000000",
    |_| "PRAGMA wal_checkpoint(TRUNCATE)".to_owned(),
    |pool| pool.connect_options().get_filename().parent().map(PathBuf::from)
);

/// The same statement with the arguments counted, where they are.
fn numbered<DB: Measured>(sql: &str) -> String {
    if DB::LABEL != "PostgreSQL" {
        return sql.to_owned();
    }
    let mut parts = sql.split('?');
    let first = parts.next().unwrap_or_default().to_owned();
    (1..).zip(parts).fold(first, |sql, (number, part)| format!("{sql}${number}{part}"))
}

/// A thousand numbers, in SQL that MySQL and MariaDB both speak.
const THOUSAND: &str = "(WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 999) SELECT n FROM numbers)";

pub(crate) async fn open<DB: Measured>() -> (String, SqlStore<DB>) {
    let table = format!("bench_{:016x}", rand::random::<u64>());
    // One more than the callers, who use a connection each: one is kept for handlers that ask for a second.
    let builder = SqlStore::<DB>::builder(DB::url()).max_connections(17);
    // Counting all of them takes its time.
    let builder = builder.response_timeout(Duration::from_secs(600));
    let store = builder.table(&*table).migrate().open().await.unwrap();
    (table, store)
}
