//! Where the servers are, and short words for what is done on them.
#![allow(dead_code, reason = "not every file of tests uses all of it")]

pub(crate) mod calls;
pub(crate) mod repeating;
pub(crate) mod servers;

use std::time::Duration;

use onlyonce_core::{
    Answer, AttemptId, Begin, Claim, Fingerprint, Hash16, Label, Owner, RecordId, Settlement, Store,
    StoreError, Takeover, Verdict,
};
use onlyonce_store_redis::RedisStore;

/// The URL in this variable. A missing server is a failure: nothing passes by not being run.
pub(crate) fn url_in(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run `cargo xtask test`, or `cargo xtask services` and set what it prints"
        )
    })
}

pub(crate) fn url() -> String {
    url_in("ONLYONCE_TEST_REDIS_URL")
}

pub(crate) fn cluster_url() -> String {
    url_in("ONLYONCE_TEST_REDIS_CLUSTER_URL")
}

pub(crate) fn sentinel_url() -> String {
    url_in("ONLYONCE_TEST_REDIS_SENTINEL_URL")
}

/// A prefix that nobody else has.
pub(crate) fn prefix() -> String {
    format!("test:{:016x}:", rand::random::<u64>())
}

pub(crate) async fn open(url: String, prefix: &str) -> RedisStore {
    RedisStore::builder(url).prefix(prefix).open().await.unwrap()
}

/// A bare connection to the single server, to do what no store would do.
pub(crate) async fn raw() -> redis::aio::MultiplexedConnection {
    redis::Client::open(url()).unwrap().get_multiplexed_async_connection().await.unwrap()
}

pub(crate) fn id() -> RecordId {
    RecordId::from_bytes(rand::random())
}

/// The name under which a record is stored: what a person would look for on the server.
pub(crate) fn key(prefix: &str, id: RecordId) -> String {
    format!("{}{id}", tag(prefix, id))
}

/// The name of the index of its shard.
pub(crate) fn index(prefix: &str, id: RecordId) -> String {
    format!("{}open", tag(prefix, id))
}

fn tag(prefix: &str, id: RecordId) -> String {
    let (id, letters) = (id.as_bytes(), b"0123456789abcdefghijklmnopqrstuv");
    let shard = usize::from(id[0]) * 4 + usize::from(id[1]) / 64;
    format!("{prefix}{{{}{}}}", char::from(letters[shard / 32]), char::from(letters[shard % 32]))
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

pub(crate) fn completed(answer: impl Into<onlyonce_core::Bytes>) -> Settlement {
    let verdict = Verdict::Completed(Answer(answer.into()));
    Settlement { verdict, retain: Duration::from_secs(600) }
}
