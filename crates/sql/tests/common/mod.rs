//! Where the servers are, and short words for what is done on them.
#![allow(dead_code, reason = "not every file of tests uses all of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

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
        let file = FILE.get_or_init(|| tempfile::tempdir().unwrap().keep().join("once.db"));
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
