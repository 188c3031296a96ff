//! The guards on a real PostgreSQL.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod guard;
#[path = "guard/round_trips.rs"]
mod round_trips;

mod db {
    use std::time::Duration;

    use sqlx::{Connection, PgConnection};

    pub(crate) type Db = sqlx::Postgres;
    pub(crate) const ROW_LOCKS: bool = true;
    /// Round trips of a guard with an operation id.
    pub(crate) const WITH_OPERATION: usize = 1;
    pub(crate) const BEGIN: &str = "BEGIN";
    /// What lets every change of a table pass without a change, where there is such a thing.
    pub(crate) const KEEPS: Option<&str> = Some(
        "CREATE FUNCTION keep_{table}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER keep_{table} BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION keep_{table}()",
    );
    pub(crate) const LOCK_TIMEOUT: &str = "SELECT current_setting('lock_timeout')";

    pub(crate) fn url() -> String {
        crate::guard::url_in("ONLYONCE_TEST_POSTGRES_URL")
    }

    /// A schema of its own.
    pub(crate) struct Home {
        pub(crate) url: String,
    }

    impl Home {
        pub(crate) async fn new() -> Self {
            let url = url();
            let name = format!("guard_{:016x}", rand::random::<u64>());
            let mut connection = PgConnection::connect(&url).await.unwrap();
            let create = format!("CREATE SCHEMA {name}");
            sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(&mut connection).await.unwrap();
            Self { url: format!("{url}?options=-csearch_path%3D{name}") }
        }

        pub(crate) async fn pool(&self, url: &str, connections: u32) -> sqlx::PgPool {
            let options = sqlx::postgres::PgPoolOptions::new().max_connections(connections);
            options.acquire_timeout(Duration::from_secs(120)).connect(url).await.unwrap()
        }
    }
}
