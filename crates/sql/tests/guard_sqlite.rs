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
