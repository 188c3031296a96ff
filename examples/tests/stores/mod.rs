//! Every store there is, empty: in memory, on disk, on the servers of the tests, and in a database.
#![allow(dead_code, unused_macros, unused_imports, reason = "not every file of tests uses all of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::sync::Arc;
use std::time::Duration;

use onlyonce::embedded::EmbeddedStore;
use onlyonce::redis::RedisStore;
use onlyonce::sql::{Database, MySql, Postgres, SqlStore, Sqlite};
use onlyonce::{MemoryStore, Store};

/// The URL in this variable. A missing server is a failure: nothing passes by not being run.
fn url(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run `cargo xtask test`, or `cargo xtask services` and set what it prints"
        )
    })
}

fn name() -> String {
    format!("test_{:016x}", rand::random::<u64>())
}

pub(crate) async fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

pub(crate) async fn embedded() -> Arc<dyn Store> {
    Arc::new(EmbeddedStore::open(tempfile::tempdir().unwrap().keep()).unwrap())
}

pub(crate) async fn redis() -> Arc<dyn Store> {
    on_redis(url("ONLYONCE_TEST_REDIS_URL")).await
}

pub(crate) async fn cluster() -> Arc<dyn Store> {
    on_redis(url("ONLYONCE_TEST_REDIS_CLUSTER_URL")).await
}

async fn on_redis(url: String) -> Arc<dyn Store> {
    Arc::new(RedisStore::builder(url).prefix(format!("{}:", name())).open().await.unwrap())
}

pub(crate) async fn mysql() -> Arc<dyn Store> {
    let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(10).acquire_timeout(PATIENCE);
    in_sql::<MySql>(pool.connect(&url("ONLYONCE_TEST_MYSQL_URL")).await.unwrap()).await
}

pub(crate) async fn postgres() -> Arc<dyn Store> {
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(10).acquire_timeout(PATIENCE);
    in_sql::<Postgres>(pool.connect(&url("ONLYONCE_TEST_POSTGRES_URL")).await.unwrap()).await
}

pub(crate) async fn sqlite() -> Arc<dyn Store> {
    let file = tempfile::tempdir().unwrap().keep().join("once.db");
    let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(4).acquire_timeout(PATIENCE);
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
        .busy_timeout(PATIENCE);
    in_sql::<Sqlite>(pool.connect_with(options).await.unwrap()).await
}

/// A thousand callers share a few connections, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

async fn in_sql<DB: Database>(pool: sqlx::Pool<DB>) -> Arc<dyn Store> {
    let store = SqlStore::<DB>::from_pool(pool).table(name()).response_timeout(PATIENCE).migrate();
    Arc::new(store.open().await.unwrap())
}

/// One test of each law on each store.
macro_rules! on_each_store {
    ($store:ident: $($law:ident,)+) => {
        mod $store {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $law() {
                super::$law(crate::stores::$store().await).await;
            })+
        }
    };
    ($($law:ident,)+) => {
        $crate::stores::on_each_store!(memory: $($law,)+);
        $crate::stores::on_each_store!(embedded: $($law,)+);
        $crate::stores::on_each_store!(redis: $($law,)+);
        $crate::stores::on_each_store!(cluster: $($law,)+);
        $crate::stores::on_each_store!(mysql: $($law,)+);
        $crate::stores::on_each_store!(postgres: $($law,)+);
        $crate::stores::on_each_store!(sqlite: $($law,)+);
    };
}
pub(crate) use on_each_store;
