//! The guards on SQLite.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod guard;

mod db {
    use std::time::Duration;

    pub(crate) type Db = sqlx::Sqlite;
    pub(crate) const ROW_LOCKS: bool = false;
    /// One who reads and writes later would fail when another wrote between.
    pub(crate) const BEGIN: &str = "BEGIN IMMEDIATE";

    /// What lets every change of a table pass without a change.
    pub(crate) const KEEPS: Option<&str> =
        Some("CREATE TRIGGER keep_{table} BEFORE UPDATE ON {table} BEGIN SELECT RAISE(IGNORE); END");

    /// A file of its own.
    pub(crate) struct Home {
        pub(crate) url: String,
        _folder: tempfile::TempDir,
    }

    impl Home {
        #[allow(clippy::unused_async, reason = "the same shape as on a server")]
        pub(crate) async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let url = format!("sqlite://{}?mode=rwc", folder.path().join("test.db").display());
            Self { url, _folder: folder }
        }

        pub(crate) async fn pool(&self, url: &str, connections: u32) -> sqlx::SqlitePool {
            let options: sqlx::sqlite::SqliteConnectOptions = url.parse().unwrap();
            let options = options
                .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
                .busy_timeout(Duration::from_secs(60));
            let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(connections);
            pool.acquire_timeout(Duration::from_secs(120)).connect_with(options).await.unwrap()
        }
    }
}

/// Wherever it is dropped: while the lock is held by another, and while it is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_is_dropped_half_way_leaves_the_time_of_its_connection_alone() {
    use onlyonce_sql::guard::locked;
    use std::future::{Future as _, poll_fn};
    use std::task::Poll;
    use std::time::Duration;

    let shop = guard::Shop::with(2).await;
    shop.sql("INSERT INTO stock VALUES (1, 10, 1)").await;
    let mut connection = shop.pool.acquire().await.unwrap();
    for held in [true, false] {
        let other = if held { Some(shop.begin().await) } else { None };
        for polls in 0..8 {
            let mut tx = sqlx::Connection::begin(&mut *connection).await.unwrap();
            let wait = Duration::from_millis(if polls % 2 == 0 { 30 } else { 0 });
            let mut lock = Box::pin(locked("stock").key("id", 1_i64).wait(wait).one(&mut tx));
            for _ in 0..polls {
                let ended = poll_fn(|context| Poll::Ready(lock.as_mut().poll(context).is_ready())).await;
                if ended {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            drop(lock);
            tx.rollback().await.unwrap();
            let time: i64 =
                sqlx::query_scalar("PRAGMA busy_timeout").fetch_one(&mut *connection).await.unwrap();
            assert_eq!(time, 60_000, "dropped after {polls} polls, held by another: {held}");
        }
        drop(other);
    }
}
