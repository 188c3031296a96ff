//! Where the servers are, and short words for what is done on them.
#![allow(dead_code, reason = "not every file of tests uses all of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

pub(crate) mod process;

use std::path::PathBuf;
use std::time::Duration;

use onlyonce_core::{
    Answer, AttemptId, Begin, Claim, Fingerprint, Hash16, Label, Owner, RecordId, Settlement, Store,
    StoreError, Takeover, Verdict,
};
use onlyonce_sql::{Database, MySql, Postgres, SqlStore, Sqlite};

/// The URL in this variable. A missing server is a failure: nothing passes by not being run.
fn url_in(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run `cargo xtask test`, or `cargo xtask services` and set what it prints"
        )
    })
}

/// Names the file of SQLite to a process that a test starts.
pub(crate) const SQLITE_FILE: &str = "ONLYONCE_TEST_SQLITE_FILE";

/// A database that tests run on.
pub(crate) trait Served: Database {
    fn url() -> String;
}

impl Served for MySql {
    fn url() -> String {
        url_in("ONLYONCE_TEST_MYSQL_URL")
    }
}

impl Served for Postgres {
    fn url() -> String {
        url_in("ONLYONCE_TEST_POSTGRES_URL")
    }
}

impl Served for Sqlite {
    /// One file for each test: there is one writer at a time, and tests run beside each other.
    fn url() -> String {
        static FILE: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
        // A process that a test starts works on the same file.
        let given = || std::env::var_os(SQLITE_FILE).map(PathBuf::from);
        let file = FILE
            .get_or_init(|| given().unwrap_or_else(|| tempfile::tempdir().unwrap().keep().join("once.db")));
        format!("sqlite://{}", file.display())
    }
}

/// A name that no other table has.
pub(crate) fn table() -> String {
    format!("test_{:016x}", rand::random::<u64>())
}

pub(crate) async fn open<DB: Served>() -> SqlStore<DB> {
    open_table::<DB>(&table()).await
}

pub(crate) async fn open_table<DB: Served>(table: &str) -> SqlStore<DB> {
    SqlStore::<DB>::builder(DB::url()).table(table).migrate().open().await.unwrap()
}

pub(crate) fn id() -> RecordId {
    RecordId::from_bytes(rand::random())
}

pub(crate) fn claim() -> Claim {
    Claim {
        owner: Owner::random(),
        fingerprint: Fingerprint::empty(),
        lease: Duration::from_secs(60),
        retain_unsettled: Duration::from_secs(600),
        takeover: Takeover::Never,
        label: Label {
            route: "POST /".into(),
            key: Hash16::from_bytes([1; 16]),
            scope: Hash16::from_bytes([2; 16]),
        },
    }
}

pub(crate) async fn begin(store: &dyn Store, id: &RecordId) -> Result<Option<AttemptId>, StoreError> {
    let claim = claim();
    Ok(match store.begin(id, &claim).await? {
        Begin::Acquired { fence, .. } => Some(AttemptId { owner: claim.owner, fence: Some(fence) }),
        Begin::Taken(_) => None,
    })
}

pub(crate) fn completed(answer: &'static str) -> Settlement {
    let verdict = Verdict::Completed(Answer(answer.into()));
    Settlement { verdict, retain: Duration::from_secs(600) }
}

/// A table of effects, and what is done to it inside of a transaction.
#[async_trait::async_trait]
pub(crate) trait Effects: Served {
    async fn make(pool: &sqlx::Pool<Self>, table: &str);
    async fn effect(connection: &mut Self::Connection, table: &str, key: &str);
    async fn count(pool: &sqlx::Pool<Self>, table: &str, key: &str) -> i64;
    /// How many keys have another number of effects than one.
    async fn wrong(pool: &sqlx::Pool<Self>, table: &str) -> i64;
    async fn say(connection: &mut Self::Connection, sql: &str);
    async fn try_say(connection: &mut Self::Connection, sql: &str) -> Result<(), sqlx::Error>;
    async fn say_on(pool: &sqlx::Pool<Self>, sql: &str);
    /// The one number that this asks for.
    async fn number_on(pool: &sqlx::Pool<Self>, sql: &str) -> i64;
}

macro_rules! effects {
    ($database:ty, $place:literal) => {
        #[async_trait::async_trait]
        impl Effects for $database {
            async fn make(pool: &sqlx::Pool<Self>, table: &str) {
                let sql =
                    format!("CREATE TABLE effects_{table} (name VARCHAR(200) NOT NULL, PRIMARY KEY (name))");
                // No key: a second effect must be seen, not refused.
                let sql = sql.replace(", PRIMARY KEY (name)", "");
                sqlx::query(sqlx::AssertSqlSafe(sql)).execute(pool).await.unwrap();
            }

            async fn effect(connection: &mut Self::Connection, table: &str, key: &str) {
                let sql = format!(concat!("INSERT INTO effects_{} (name) VALUES (", $place, ")"), table);
                sqlx::query(sqlx::AssertSqlSafe(sql)).bind(key.to_owned()).execute(connection).await.unwrap();
            }

            async fn count(pool: &sqlx::Pool<Self>, table: &str, key: &str) -> i64 {
                let sql = format!(concat!("SELECT COUNT(*) FROM effects_{} WHERE name = ", $place), table);
                let count = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(key.to_owned()).fetch_one(pool);
                count.await.unwrap()
            }

            async fn wrong(pool: &sqlx::Pool<Self>, table: &str) -> i64 {
                let each = format!("SELECT name FROM effects_{table} GROUP BY name HAVING COUNT(*) <> 1");
                let sql = format!("SELECT COUNT(*) FROM ({each}) AS wrong");
                sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(pool).await.unwrap()
            }

            async fn say(connection: &mut Self::Connection, sql: &str) {
                sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(connection).await.unwrap();
            }

            async fn try_say(connection: &mut Self::Connection, sql: &str) -> Result<(), sqlx::Error> {
                sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(connection).await.map(drop)
            }

            async fn say_on(pool: &sqlx::Pool<Self>, sql: &str) {
                sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(pool).await.unwrap();
            }

            async fn number_on(pool: &sqlx::Pool<Self>, sql: &str) -> i64 {
                sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(pool).await.unwrap()
            }
        }
    };
}

effects!(MySql, "?");
effects!(Postgres, "$1");
effects!(Sqlite, "?");

/// The error of calls in tests: an answer of the business, an accident, or no answer.
#[derive(Debug)]
pub(crate) enum No {
    SoldOut,
    Accident,
    Refused(onlyonce_core::Refusal),
}

impl From<onlyonce_core::Refusal> for No {
    fn from(refusal: onlyonce_core::Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl onlyonce_core::Classify for No {
    fn classify(&self) -> onlyonce_core::Class {
        match self {
            Self::SoldOut => onlyonce_core::Class::Keep,
            Self::Accident | Self::Refused(_) => onlyonce_core::Class::Unknown,
        }
    }

    fn save(&self) -> Result<onlyonce_core::Bytes, onlyonce_core::codec::CodecError> {
        Ok("sold out".into())
    }

    fn revive(_: onlyonce_core::Bytes) -> Result<Self, onlyonce_core::codec::CodecError> {
        Ok(Self::SoldOut)
    }
}

/// One test for each database.
#[macro_export]
macro_rules! on_each {
    ($($test:ident,)+) => {
        mod mysql { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $test() { super::$test::<onlyonce_sql::MySql>().await; })+ }
        mod postgres { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $test() { super::$test::<onlyonce_sql::Postgres>().await; })+ }
        mod sqlite { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $test() { super::$test::<onlyonce_sql::Sqlite>().await; })+ }
    };
}

/// A proxy before the database, and the URL that leads through it. Without TLS, which a server may offer: the proxy has to read
/// what is said.
pub(crate) async fn proxied<DB: Served>() -> (onlyonce_testkit::FaultProxy, String) {
    let url = DB::url();
    let at = url.find('@').unwrap() + 1;
    let end = at + url[at..].find('/').unwrap();
    let proxy = onlyonce_testkit::FaultProxy::start(&url[at..end]).await.unwrap();
    let plain = if url.starts_with("mysql") { "ssl-mode=DISABLED" } else { "sslmode=disable" };
    let more = if url.contains('?') { '&' } else { '?' };
    let through = format!("{}127.0.0.1:{}{}{more}{plain}", &url[..at], proxy.port(), &url[end..]);
    (proxy, through)
}

/// The database behind a proxy, with a pool of its own.
pub(crate) async fn behind<DB: Served>(table: &str) -> (onlyonce_testkit::FaultProxy, SqlStore<DB>) {
    let (proxy, through) = proxied::<DB>().await;
    let store = SqlStore::<DB>::builder(through).table(table).open().await.unwrap();
    (proxy, store)
}
