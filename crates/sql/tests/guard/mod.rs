//! The same laws for every database. `crate::db` says which one it is.

mod dedup;
mod locked;
mod misuse;
mod rolled_back;
mod sequence;
mod transition;
mod unique;
mod versioned;

use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_sql::guard::{GuardError, OperationId, migrate};
use sqlx::{AssertSqlSafe, Pool, Row, Transaction};

use crate::db::{BEGIN, Db, Home};

pub(crate) const WRITERS: u32 = 64;

/// The URL in this variable. A missing server is a failure: nothing passes by not being run.
#[allow(dead_code, reason = "SQLite has no server")]
pub(crate) fn url_in(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run `cargo xtask test`, or `cargo xtask services` and set what it prints"
        )
    })
}

/// A database with the tables of the guards and some of a shop.
pub(crate) struct Shop {
    pub(crate) pool: Pool<Db>,
    #[allow(dead_code, reason = "it is held, and only servers are reached in another way")]
    pub(crate) home: Home,
}

const TABLES: &str = "
    CREATE TABLE orders (id BIGINT PRIMARY KEY, code VARCHAR(64) NOT NULL, email VARCHAR(64),
        status VARCHAR(20) NOT NULL DEFAULT 'placed', step INT NOT NULL DEFAULT 1, amount BIGINT NOT NULL DEFAULT 0);
    CREATE UNIQUE INDEX un_code ON orders (code);
    CREATE UNIQUE INDEX un_email ON orders (email);
    CREATE TABLE stock (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL, version INT NOT NULL);
    CREATE TABLE posts (id BIGINT PRIMARY KEY, text VARCHAR(64), version BIGINT NOT NULL);
";

impl Shop {
    pub(crate) async fn open() -> Self {
        Self::with(8).await
    }

    pub(crate) async fn with(connections: u32) -> Self {
        let home = Home::new().await;
        let pool = home.pool(&home.url, connections).await;
        migrate(&mut pool.acquire().await.unwrap()).await.unwrap();
        let shop = Self { pool, home };
        shop.sql(TABLES).await;
        shop
    }

    pub(crate) async fn sql(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await.unwrap();
    }

    pub(crate) async fn begin(&self) -> Transaction<'static, Db> {
        self.pool.begin_with(BEGIN).await.unwrap()
    }

    /// The one number that this asks for.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_one(&self.pool).await.unwrap().get(0)
    }

    /// Runs the work in a transaction, and again where the database says so.
    pub(crate) async fn run<T>(
        &self,
        work: impl AsyncFn(&mut Transaction<'static, Db>) -> Result<T, GuardError>,
    ) -> T {
        for _ in 0..100 {
            let mut tx = self.begin().await;
            match work(&mut tx).await {
                Ok(done) => {
                    tx.commit().await.unwrap();
                    return done;
                }
                Err(error) if error.is_retryable() => {
                    tx.rollback().await.unwrap();
                    tokio::time::sleep(Duration::from_millis(rand::random_range(1..30))).await;
                }
                Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
            }
        }
        panic!("rolled back too often");
    }

    /// The same by 64 writers at once.
    pub(crate) async fn race<T>(
        &self,
        work: impl AsyncFn(u32, &mut Transaction<'static, Db>) -> Result<T, GuardError>,
    ) -> Vec<T> {
        let work = &work;
        join_all((0..WRITERS).map(|writer| async move { self.run(async |tx| work(writer, tx).await).await }))
            .await
    }
}

pub(crate) fn operation(key: impl ToString) -> OperationId {
    OperationId::new("test", &key.to_string()).unwrap()
}

pub(crate) fn count<T>(all: &[T], is: impl Fn(&T) -> bool) -> usize {
    all.iter().filter(|one| is(one)).count()
}
