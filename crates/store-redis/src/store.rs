//! The store itself: what callers hold.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::{
    AttemptId, Begin, Claim, Fence, RecordId, Revision, Settled, Settlement, Snapshot, Store, StoreError,
};
use redis::Value;
use redis::aio::ConnectionLike;
use redis::cluster_async::ClusterConnection;

use crate::builder::Builder;
use crate::fault::Damaged;
use crate::index::Swept;
use crate::keys::Keys;
use crate::link::Link;
use crate::open_error::OpenError;
use crate::record_script::{self as script, RecordScript};
use crate::replicas::Replicas;
use crate::reply;
use crate::server_time::ServerTime;
use crate::stored;
use crate::target::Target;
use crate::wakes::Wakes;

/// Records on a Redis or a Cluster, shared by all processes that open it with the same prefix.
///
/// ```no_run
/// # async fn open() -> Result<(), onlyonce_store_redis::OpenError> {
/// use onlyonce_core::Idempotency;
/// use onlyonce_store_redis::RedisStore;
/// let once = Idempotency::new(RedisStore::open("redis://localhost").await?);
/// # Ok(()) }
/// ```
pub struct RedisStore {
    pub(crate) link: Arc<Link>,
    pub(crate) keys: Keys,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) replicas: Option<Replicas>,
    pub(crate) swept: Swept,
    pub(crate) time: ServerTime,
    pub(crate) address: String,
}

impl RedisStore {
    /// Opens the store at this URL: `redis://`, `rediss://`, `redis-sentinel://h1:p1,h2:p2/name`,
    /// `redis-cluster://h1:p1,h2:p2`, or `h1:p1;h2:p2`.
    ///
    /// # Errors
    /// See [`OpenError`], whose text says what to do.
    pub async fn open(url: impl Into<String>) -> Result<Self, OpenError> {
        Self::builder(url).open().await
    }

    /// Whether [`open`](Self::open) could read this URL; nothing is connected to.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_url(url: &str) -> Result<(), OpenError> {
        Target::parse(url).map(drop)
    }

    /// Settings for a store at this URL.
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder::url(url.into())
    }

    /// Settings for a store on a connection to one Redis that you already have, such as a
    /// [`MultiplexedConnection`](redis::aio::MultiplexedConnection) or a `ConnectionManager`.
    ///
    /// It has no second connection to listen on, so calls that wait for others ask again and again, with growing pauses.
    pub fn from_connection(connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> Builder {
        Builder::connection(connection)
    }

    /// As [`from_connection`](Self::from_connection), for a connection to a Cluster.
    ///
    /// The driver may retry on it unseen, so every failure counts as "may have happened".
    pub fn from_cluster_connection(connection: ClusterConnection) -> Builder {
        Builder::cluster(connection)
    }

    /// Locks on the same connections, under the same prefix.
    #[cfg(feature = "locks")]
    #[must_use]
    pub fn locks(&self) -> crate::RedisLocks {
        crate::RedisLocks::of(self)
    }

    async fn run(
        &self,
        script: &RecordScript,
        call: &'static str,
        id: &RecordId,
        arguments: &[&[u8]],
    ) -> Result<Value, StoreError> {
        script.run(&self.link, &self.keys.record(id), arguments).await.map_err(|fault| fault.during(call))
    }

    /// As [`run`](Self::run), and says how many replicas have it, if that matters.
    async fn run_replicated(
        &self,
        script: &RecordScript,
        call: &'static str,
        id: &RecordId,
        arguments: &[&[u8]],
    ) -> Result<(Value, Option<(&Replicas, u32)>), StoreError> {
        let Some(replicas) = &self.replicas else {
            return Ok((self.run(script, call, id, arguments).await?, None));
        };
        let names = self.keys.record(id);
        let run = script.run_replicated(&self.link, &names, arguments, replicas).await;
        let (reply, have) = run.map_err(|fault| fault.during(call))?;
        Ok((reply, Some((replicas, have))))
    }

    async fn settled(
        &self,
        script: &RecordScript,
        call: &'static str,
        id: &RecordId,
        arguments: &[&[u8]],
    ) -> Result<Settled, StoreError> {
        settled(&self.run(script, call, id, arguments).await?, call)
    }

    pub(crate) async fn read(
        &self,
        id: &RecordId,
        call: &'static str,
        arguments: &[&[u8]],
    ) -> Result<Option<Snapshot>, StoreError> {
        let reply = self.run(&script::GET, call, id, arguments).await?;
        reply::got(reply, &self.time).map_err(|damaged| damaged.during(call))
    }

    /// Whether the record is still as it was seen, and whether who waits for it will be woken.
    pub(crate) async fn is_at(&self, id: &RecordId, seen: Revision, wake: bool) -> Result<bool, StoreError> {
        let flag = |is: bool| if is { b"1" } else { b"0" };
        let arguments: [&[u8]; 3] = [&stored::fence(seen.fence), flag(seen.settled), flag(wake)];
        Ok(self.settled(&script::WAIT, "changed", id, &arguments).await? == Settled::Applied)
    }
}

fn settled(reply: &Value, call: &'static str) -> Result<Settled, StoreError> {
    match reply {
        Value::Int(1) => Ok(Settled::Applied),
        Value::Int(0) => Ok(Settled::Lost),
        _ => Err(Damaged("the reply is neither 0 nor 1").during(call)),
    }
}

impl fmt::Debug for RedisStore {
    // The address has neither user nor password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RedisStore");
        shown.field("address", &self.address).field("prefix", &self.keys.prefix()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn begin(&self, id: &RecordId, claim: &Claim) -> Result<Begin, StoreError> {
        let (tail, takeover) = (stored::tail(&claim.fingerprint, &claim.label), stored::takeover(claim));
        let (lease, retain) = (stored::micros(claim.lease), stored::micros(claim.retain_unsettled));
        // At least a millisecond, as Redis has it; the script knows better.
        let longest = stored::millis(claim.retain_unsettled.max(claim.lease).max(Duration::from_millis(1)));
        let owner = claim.owner.as_bytes();
        let arguments: [&[u8]; 6] =
            [owner, &tail, lease.as_bytes(), retain.as_bytes(), longest.as_bytes(), &takeover];
        let given = arguments.len() - usize::from(takeover.is_empty());
        let (reply, replicated) =
            self.run_replicated(&script::BEGIN, "begin", id, &arguments[..given]).await?;
        let begun = reply::begun(reply, &self.time).map_err(|damaged| damaged.during("begin"))?;
        if let (Begin::Acquired { .. }, Some((replicas, have))) = (&begun, replicated) {
            replicas.reached(have, "begin")?;
        }
        Ok(begun)
    }

    async fn renew(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        lease: Duration,
    ) -> Result<Settled, StoreError> {
        let lease = stored::micros(lease);
        let arguments = [&stored::attempt(attempt)[..], lease.as_bytes()];
        self.settled(&script::RENEW, "renew", id, &arguments).await
    }

    async fn settle(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        how: &Settlement,
    ) -> Result<Settled, StoreError> {
        let (verdict, answer) = stored::verdict(&how.verdict);
        let (retain, millis) = (stored::micros(how.retain), stored::millis(how.retain));
        let attempt = stored::attempt(attempt);
        let arguments = [&attempt[..], verdict, answer, retain.as_bytes(), millis.as_bytes()];
        let (reply, replicated) = self.run_replicated(&script::SETTLE, "settle", id, &arguments).await?;
        let settled = settled(&reply, "settle")?;
        if let (Settled::Applied, Some((replicas, have))) = (settled, replicated) {
            replicas.reached(have, "settle")?;
        }
        Ok(settled)
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.read(id, "get", &[]).await
    }

    async fn forget(&self, id: &RecordId, seen: Fence) -> Result<Settled, StoreError> {
        self.settled(&script::FORGET, "forget", id, &[&stored::fence(seen)]).await
    }

    /// Redis removes expired records by itself; what they leave in the index is taken out, of a few shards each time.
    async fn sweep(&self, _: u32) -> Result<u32, StoreError> {
        // Of any record, for the server's time. Where that fails, the time of an earlier reply goes on.
        let _ = self.get(&RecordId::from_bytes([0; 32])).await;
        self.tidy_some().await.map_err(|fault| fault.during("sweep"))?;
        Ok(0)
    }

    /// Wakes when any process changes the record; where nothing is heard, it asks with growing pauses.
    async fn changed(&self, id: &RecordId, seen: Revision, timeout: Duration) {
        // An error is the end of the wait, which is all there is to say.
        let _ = tokio::time::timeout(timeout, self.wait(id, seen)).await;
    }
}
