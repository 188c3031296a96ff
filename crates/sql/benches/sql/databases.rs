//! The three databases, as far as they are measured.

use onlyonce_sql::{Database, MySql, Postgres, SqlStore, Sqlite};
use sqlx::{AssertSqlSafe, Pool, Transaction};

#[async_trait::async_trait]
pub(crate) trait Measured: Database {
    const LABEL: &'static str;
    fn url() -> String;
    async fn say(pool: &Pool<Self>, sql: String);
    async fn business(connection: &mut Self::Connection, table: &str);
    async fn bare(pool: &Pool<Self>, table: &str);
    /// Article 004: three transactions, with the row locked in two of them.
    async fn article(pool: &Pool<Self>, table: &str, key: &str);
    /// Completed records that are kept, or that have expired.
    async fn fill(pool: &Pool<Self>, table: &str, records: u64, expired: bool);
}

macro_rules! measured {
    ($database:ty, $label:literal, $url:expr, $one:literal, $two:literal, $lock:literal, $id:literal, $numbers:expr, $more:literal, $value:literal, $begin:literal) => {
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

            async fn fill(pool: &Pool<Self>, table: &str, records: u64, expired: bool) {
                let expires = if expired { "1" } else { "4000000000000000" };
                let numbers: fn(u64) -> String = $numbers;
                let sql = format!(
                    concat!(
                        "INSERT INTO {} (id, status, hash_rules, hash, fence, attempts, owner, began_over, lease_until, created_at, ",
                        "settled_at, expires_at, route, key_hash, scope_hash, answer", $more, ") ",
                        "SELECT ", $id, ", 1, 1, ", $id, ", 1, 1, substr(", $id, ", 1, 16), 0, 1, 1, 1, {}, substr(", $id,
                        ", 1, 4), substr(", $id, ", 1, 16), substr(", $id, ", 1, 16), ", $id, $value, " FROM {}"
                    ),
                    table, expires, numbers(records)
                );
                Self::say(pool, sql).await;
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
    "sha256((random()::text || n::text)::bytea)",
    |n| format!("generate_series(1, {n}) AS numbers(n)"),
    ", awaited",
    ", FALSE",
    "BEGIN"
);
measured!(
    MySql,
    "MySQL",
    served("ONLYONCE_TEST_MYSQL_URL"),
    "?",
    "?",
    "FOR UPDATE",
    "UNHEX(SHA2(CONCAT(RAND(), n), 256))",
    |n| format!(
        "(SELECT a.n + 1000 * b.n AS n FROM {THOUSAND} AS a CROSS JOIN {THOUSAND} AS b LIMIT {n}) AS numbers"
    ),
    "",
    "",
    "BEGIN"
);
measured!(
    Sqlite,
    "SQLite",
    format!("sqlite://{}", tempfile::tempdir().unwrap().keep().join("bench.db").display()),
    "?",
    "?",
    "",
    "randomblob(32)",
    |n| format!(
        "(WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {n}) SELECT n FROM numbers)"
    ),
    "",
    "",
    "BEGIN IMMEDIATE"
);

/// A thousand numbers, in SQL that MySQL and MariaDB both speak.
const THOUSAND: &str = "(WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 999) SELECT n FROM numbers)";

pub(crate) async fn open<DB: Measured>() -> (String, SqlStore<DB>) {
    let table = format!("bench_{:016x}", rand::random::<u64>());
    // One more than the callers, who use a connection each: one is kept for handlers that ask for a second.
    let builder = SqlStore::<DB>::builder(DB::url()).max_connections(17);
    let store = builder.table(&*table).migrate().open().await.unwrap();
    (table, store)
}
