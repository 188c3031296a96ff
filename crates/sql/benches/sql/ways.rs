//! The ways that are compared, each with as many callers as connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onlyonce_core::codec::CodecError;
use onlyonce_core::{
    Answer, AttemptId, Begin, Bytes, Claim, Class, Classify, Fingerprint, Hash16, Idempotency, Inspect as _,
    Label, Owner, RecordId, Refusal, Settlement, Store as _, Takeover, Verdict,
};
use onlyonce_sql::{InTransaction as _, SqlStore, Tx};

use crate::databases::{self, Kind, Measured};

const CALLERS: usize = 16;

/// How one payment is made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// `BEGIN; INSERT; COMMIT`, without any protection.
    Bare,
    /// In the transaction of its record.
    Ours,
    /// As article 004 does it.
    Article,
    /// With one statement more, and none of our work: who comes twice at once runs twice, and one is rolled back.
    AtCommit,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Bare, Self::Ours, Self::Article, Self::AtCommit];
}

pub(crate) struct World<DB: Measured> {
    table: String,
    store: SqlStore<DB>,
    once: Idempotency,
}

#[derive(Debug)]
struct No;

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> Self {
        panic!("{refusal:?}")
    }
}

impl Classify for No {
    fn classify(&self) -> Class {
        Class::Release
    }

    fn save(&self) -> Result<Bytes, CodecError> {
        Ok(Bytes::new())
    }

    fn revive(_: Bytes) -> Result<Self, CodecError> {
        Ok(Self)
    }
}

impl<DB: Measured> World<DB> {
    pub(crate) async fn new() -> Self {
        let (table, store) = databases::open::<DB>().await;
        DB::say(store.pool(), format!("CREATE TABLE business_{table} (amount BIGINT NOT NULL)")).await;
        let article = format!(
            "CREATE TABLE article_{table} (idem_key VARCHAR(128) NOT NULL PRIMARY KEY, request_hash VARCHAR(64), \
             status VARCHAR(20) NOT NULL, response_json TEXT)"
        );
        DB::say(store.pool(), article).await;
        let once = store.same_transaction().build().unwrap();
        Self { table, store, once }
    }

    /// With so many completed records.
    pub(crate) async fn filled(records: u64) -> Self {
        let world = Self::new().await;
        DB::fill(world.store.pool(), &world.table, records, Kind::Kept).await;
        DB::rest(world.store.pool(), &world.table).await;
        world
    }

    /// What was written is much, and is not left to others.
    pub(crate) async fn remove(self) {
        let Self { table, store, .. } = self;
        match DB::folder(store.pool()) {
            Some(folder) => {
                store.pool().close().await;
                std::fs::remove_dir_all(folder).unwrap();
            }
            None => {
                for name in [
                    format!("business_{table}"),
                    format!("article_{table}"),
                    format!("{table}_migrations"),
                    table,
                ] {
                    DB::say(store.pool(), format!("DROP TABLE {name}")).await;
                }
            }
        }
    }

    /// How many records there are.
    pub(crate) async fn count(&self) -> u64 {
        self.store.count().await.unwrap().values().sum()
    }

    /// Payments a second.
    pub(crate) async fn rate(&self, way: Way, span: Duration) -> f64 {
        let done = Arc::new(AtomicU64::new(0));
        let started = Instant::now();
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (table, store, once) = (self.table.clone(), self.store.clone(), self.once.clone());
                let done = Arc::clone(&done);
                tokio::spawn(async move {
                    while started.elapsed() < span {
                        pay(way, &table, &store, &once).await;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
        done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
    }
}

async fn pay<DB: Measured>(way: Way, table: &str, store: &SqlStore<DB>, once: &Idempotency) {
    let key = format!("{:032x}", rand::random::<u128>());
    match way {
        Way::Bare => DB::bare(store.pool(), table).await,
        Way::AtCommit => DB::at_commit(store.pool(), table).await,
        Way::Article => DB::article(store.pool(), table, &key).await,
        Way::Ours => {
            let table = table.to_owned();
            let paid: Result<u64, No> = once
                .call("pay", key)
                .input(&42)
                .in_transaction(move |mut tx: Tx<DB>| async move {
                    DB::business(&mut tx, &table).await;
                    Ok(42)
                })
                .await;
            paid.unwrap();
        }
    }
}

// What is timed among few and among many records; seconds each.
impl<DB: Measured> World<DB> {
    /// A begin and a settle in lease mode, one after the other.
    pub(crate) async fn leased(&self, span: Duration) -> f64 {
        repeated(span, || begin_and_settle(&self.store)).await
    }

    /// A call in the transaction of its record, one after the other.
    pub(crate) async fn in_transaction(&self, span: Duration) -> f64 {
        repeated(span, || pay(Way::Ours, &self.table, &self.store, &self.once)).await
    }

    /// A sweep of a thousand expired records.
    pub(crate) async fn swept(&self) -> f64 {
        DB::fill(self.store.pool(), &self.table, 1000, Kind::Expired).await;
        let started = Instant::now();
        assert_eq!(self.store.purge(|_| ()).await.unwrap(), 1000);
        started.elapsed().as_secs_f64()
    }
}

async fn repeated<F: Future<Output = ()>>(span: Duration, mut call: impl FnMut() -> F) -> f64 {
    let started = Instant::now();
    let mut calls = 0.0;
    while calls == 0.0 || started.elapsed() < span {
        call().await;
        calls += 1.0;
    }
    started.elapsed().as_secs_f64() / calls
}

async fn begin_and_settle<DB: Measured>(store: &SqlStore<DB>) {
    let id = RecordId::from_bytes(rand::random());
    let claim = Claim {
        owner: Owner::random(),
        fingerprint: Fingerprint::empty(),
        lease: Duration::from_secs(60),
        retain_unsettled: Duration::from_secs(86_400),
        takeover: Takeover::Never,
        label: Label {
            route: "POST /pay".into(),
            key: Hash16::from_bytes(rand::random()),
            scope: Hash16::from_bytes(rand::random()),
        },
    };
    let Begin::Acquired { fence, .. } = store.begin(&id, &claim).await.unwrap() else { panic!("taken") };
    let attempt = AttemptId { owner: claim.owner, fence: Some(fence) };
    let verdict = Verdict::Completed(Answer("{\"paid\":42}".into()));
    let how = Settlement { verdict, retain: Duration::from_secs(86_400) };
    store.settle(&id, &attempt, &how).await.unwrap();
}
