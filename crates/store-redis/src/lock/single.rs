//! Locks on one Redis, on one that Sentinels watch, or on a Cluster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::lock::{Acquired, LockBackend, LockName, Release, Renewed};
use onlyonce_core::{Fence, Owner, StoreError};
use redis::Value;
use redis::aio::ConnectionLike;
use redis::cluster_async::ClusterConnection;

use super::counter::OnceCounter;
use super::names::{Names, Shard, value};
use super::script;
use crate::builder::Builder;
use crate::fault::{Damaged, Fault};
use crate::link::Link;
use crate::open_error::OpenError;
use crate::script::Script;
use crate::store::RedisStore;
use crate::wakes::Wakes;

/// The first pause where releases are not heard of; it doubles.
const SHORT: Duration = Duration::from_millis(10);
/// The longest pause where releases are not heard of.
const LONG: Duration = Duration::from_millis(500);
/// Where they are heard of, a message may still be lost, in a failover for example.
const HEARING: Duration = Duration::from_secs(5);

/// Locks with fences, for [`Locks`](onlyonce_core::lock::Locks). Processes share locks if they share server, database and
/// prefix.
#[derive(Clone)]
pub struct RedisLocks {
    link: Arc<Link>,
    wakes: Arc<Wakes>,
    names: Names,
    address: String,
}

impl RedisLocks {
    /// Opens locks at this URL, in any form that [`RedisStore::open`] takes.
    ///
    /// # Errors
    /// See [`OpenError`], whose text says what to do.
    pub async fn open(url: impl Into<String>) -> Result<Self, OpenError> {
        Self::builder(url).open_locks().await
    }

    /// Settings for locks at this URL, to be [opened](Builder::open_locks).
    pub fn builder(url: impl Into<String>) -> Builder {
        RedisStore::builder(url)
    }

    /// As [`RedisStore::from_connection`]: who waits asks again and again, with growing pauses.
    pub fn from_connection(connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> Builder {
        RedisStore::from_connection(connection)
    }

    /// As [`RedisStore::from_cluster_connection`].
    pub fn from_cluster_connection(connection: ClusterConnection) -> Builder {
        RedisStore::from_cluster_connection(connection)
    }

    /// A counter of first times on the same server. See [`OnceCounter`].
    #[must_use]
    pub fn once_counter(&self, span: Duration) -> OnceCounter {
        OnceCounter::new(Arc::clone(&self.link), self.names.clone(), span)
    }

    pub(crate) fn of(store: &RedisStore) -> Self {
        Self {
            link: Arc::clone(&store.link),
            wakes: Arc::clone(&store.wakes),
            names: Names::new(store.keys.prefix(), store.keys.channel()),
            address: store.address.clone(),
        }
    }

    async fn run(
        &self,
        script: &Script,
        call: &'static str,
        name: &LockName,
        arguments: &[&[u8]],
    ) -> Result<Value, StoreError> {
        let lock = self.names.lock(name);
        script.run(&self.link, &[&lock], arguments).await.map_err(|fault| fault.during(call))
    }

    /// How long the lock is taken for; `None` if it is free.
    async fn left(&self, name: &LockName, wake: bool) -> Result<Option<Duration>, Fault> {
        let lock = self.names.lock(name);
        let wake: &[u8] = if wake { b"1" } else { b"0" };
        Ok(match script::WAIT.run(&self.link, &[&lock], &[wake]).await? {
            Value::Int(0) => None,
            Value::Int(left) => Some(millis(left).unwrap_or(HEARING)),
            _ => Some(HEARING),
        })
    }

    async fn wait(&self, name: &LockName) {
        let id = Shard::of(name).id();
        let mut pause = SHORT;
        loop {
            let notified = self.wakes.of(&id).notified();
            tokio::pin!(notified);
            // Enlisted before the look, so that a release after it is heard and one before it is seen.
            notified.as_mut().enable();
            let hears = self.wakes.hears();
            let left = match self.left(name, hears).await {
                Ok(None) => return,
                Ok(Some(left)) => left,
                // A server that does not answer says nothing about the lock.
                Err(_) => LONG,
            };
            let jitter = Duration::from_millis(rand::random_range(1..=10));
            let quiet = if hears { (left + jitter).min(HEARING) } else { pause.min(left + jitter) };
            tokio::select! {
                () = notified => return,
                () = tokio::time::sleep(quiet) => {}
            }
            pause = (pause * 2).min(LONG);
        }
    }
}

pub(super) fn millis(left: i64) -> Option<Duration> {
    u64::try_from(left).ok().map(Duration::from_millis)
}

/// What is asked of the server, at least a millisecond.
pub(super) fn ttl(span: Duration) -> String {
    span.as_millis().max(1).to_string()
}

pub(super) fn released(reply: &Value) -> Result<Release, Damaged> {
    match reply {
        Value::Int(1) => Ok(Release::Released),
        Value::Int(0) => Ok(Release::AlreadyExpired),
        Value::Int(2) => Ok(Release::TakenOver),
        _ => Err(Damaged("the reply to a release is of no known form")),
    }
}

#[async_trait]
impl LockBackend for RedisLocks {
    type Proof = Fence;

    async fn acquire(
        &self,
        name: &LockName,
        owner: &Owner,
        span: Duration,
    ) -> Result<Acquired<Fence>, StoreError> {
        let (lock, fence) = (self.names.lock(name), self.names.fence(name));
        let (value, ttl) = (value(owner), ttl(span));
        let reply = script::ACQUIRE.run(&self.link, &[&lock, &fence], &[&value, ttl.as_bytes()]).await;
        match reply.map_err(|fault| fault.during("acquire"))? {
            Value::BulkString(fence) => {
                let fence = std::str::from_utf8(&fence).ok().and_then(|fence| fence.parse().ok());
                let fence = fence.ok_or_else(|| Damaged("a fence is not a number").during("acquire"))?;
                Ok(Acquired::Granted(Fence(fence)))
            }
            Value::Array(left) => match left[..] {
                [Value::Int(left)] => Ok(Acquired::Taken { free_in: millis(left) }),
                _ => Err(Damaged("the reply to an acquire is of no known form").during("acquire")),
            },
            _ => Err(Damaged("the reply to an acquire is of no known form").during("acquire")),
        }
    }

    async fn renew(&self, name: &LockName, owner: &Owner, span: Duration) -> Result<Renewed, StoreError> {
        match self.run(&script::RENEW, "renew", name, &[&value(owner), ttl(span).as_bytes()]).await? {
            Value::Int(1) => Ok(Renewed::Renewed),
            Value::Int(0) => Ok(Renewed::Lost),
            _ => Err(Damaged("the reply to a renewal is neither 0 nor 1").during("renew")),
        }
    }

    async fn release(&self, name: &LockName, owner: &Owner) -> Result<Release, StoreError> {
        let reply = self.run(&script::RELEASE, "release", name, &[&value(owner)]).await?;
        released(&reply).map_err(|damaged| damaged.during("release"))
    }

    /// Woken by the release; at the latest when the ttl is over, and where nothing is heard it asks with growing pauses.
    async fn freed(&self, name: &LockName, timeout: Duration) {
        let _ = tokio::time::timeout(timeout, self.wait(name)).await;
    }
}

impl fmt::Debug for RedisLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLocks").field("address", &self.address).finish_non_exhaustive()
    }
}
