//! Every law, on a real MariaDB (or MySQL), a real PostgreSQL, and SQLite; each test with a table of its own.
#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "a harness is a test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::Served;
use onlyonce_core::{Inspect, Store};
use onlyonce_sql::SqlStore;
use onlyonce_testkit::{
    Harness, InspectHarness, conformance, conformance_contended_fences, conformance_inspect,
};

struct OnSql<DB: Served>(Arc<SqlStore<DB>>);

#[async_trait::async_trait]
impl<DB: Served> Harness for OnSql<DB> {
    async fn open() -> Self {
        Self(Arc::new(common::open::<DB>().await))
    }

    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(300)
    }

    async fn pass(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

#[async_trait::async_trait]
impl<DB: Served> InspectHarness for OnSql<DB> {
    fn inspect(&self) -> Arc<dyn Inspect> {
        self.0.clone()
    }
}

/// Without the law of contended fences: see docs/guarantees.md.
mod mysql {
    use super::*;
    conformance!(OnSql<onlyonce_sql::MySql>);
    conformance_inspect!(OnSql<onlyonce_sql::MySql>);
}

mod postgres {
    use super::*;
    conformance!(OnSql<onlyonce_sql::Postgres>);
    conformance_contended_fences!(OnSql<onlyonce_sql::Postgres>);
    conformance_inspect!(OnSql<onlyonce_sql::Postgres>);
}

mod sqlite {
    use super::*;
    conformance!(OnSql<onlyonce_sql::Sqlite>);
    conformance_contended_fences!(OnSql<onlyonce_sql::Sqlite>);
    conformance_inspect!(OnSql<onlyonce_sql::Sqlite>);
}
