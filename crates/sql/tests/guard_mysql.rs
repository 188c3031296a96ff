//! The guards on a real MySQL or MariaDB.
#![cfg(feature = "mysql")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod guard;
#[path = "guard/round_trips.rs"]
mod round_trips;

mod db {
    use std::time::Duration;

    use sqlx::{Connection, MySqlConnection};

    pub(crate) type Db = sqlx::MySql;
    pub(crate) const ROW_LOCKS: bool = true;
    /// Round trips of a guard with an operation id.
    pub(crate) const WITH_OPERATION: usize = 2;
    pub(crate) const BEGIN: &str = "BEGIN";
    /// What lets every change of a table pass without a change, where there is such a thing.
    pub(crate) const KEEPS: Option<&str> = None;
    pub(crate) const LOCK_TIMEOUT: &str = "SELECT CAST(@@SESSION.innodb_lock_wait_timeout AS CHAR)";

    pub(crate) fn url() -> String {
        crate::guard::url_in("ONLYONCE_TEST_MYSQL_URL")
    }

    /// A database of its own.
    pub(crate) struct Home {
        pub(crate) url: String,
    }

    impl Home {
        pub(crate) async fn new() -> Self {
            let url = url();
            let name = format!("guard_{:016x}", rand::random::<u64>());
            let mut connection = MySqlConnection::connect(&url).await.unwrap();
            let create = format!("CREATE DATABASE {name}");
            sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(&mut connection).await.unwrap();
            let (server, _) = url.rsplit_once('/').unwrap();
            Self { url: format!("{server}/{name}") }
        }

        pub(crate) async fn pool(&self, url: &str, connections: u32) -> sqlx::MySqlPool {
            let options = sqlx::mysql::MySqlPoolOptions::new().max_connections(connections);
            options.acquire_timeout(Duration::from_secs(120)).connect(url).await.unwrap()
        }
    }
}
