//! A Redis as a near cache before another store.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use onlyonce_core::codec::{CodecError, Reader, Writer};
use onlyonce_core::{
    Answer, Clock, Fence, Fingerprint, Hash16, Label, Moment, NearCache, RecordId, Snapshot, State,
    SystemClock,
};
use parking_lot::Mutex;
use redis::Value;

use crate::fault::Fault;
use crate::store::RedisStore;

/// A cache that takes longer is passed by.
const PATIENCE: Duration = Duration::from_millis(100);
/// For how long a cache that failed is left alone.
const REST: Duration = Duration::from_secs(1);

/// Completed answers in a Redis, for at most 60 seconds each, before a store that is farther away or slower: see
/// [`Tiered`](onlyonce_core::Tiered). All processes share it.
///
/// It may lose everything, so any Redis will do, also one that evicts. One that does not answer within 100 ms is left alone for a second; the
/// truth answers meanwhile.
///
/// ```no_run
/// # async fn open(database: onlyonce_core::MemoryStore) -> Result<(), onlyonce_store_redis::OpenError> {
/// use onlyonce_core::{Idempotency, Tiered};
/// use onlyonce_store_redis::{RedisCache, RedisStore};
/// let cache = RedisCache::new(RedisStore::open("redis://localhost").await?);
/// let once = Idempotency::new(Tiered::new(database).with_cache(cache));
/// # Ok(()) }
/// ```
pub struct RedisCache {
    redis: RedisStore,
    longest: Duration,
    /// In microseconds of the clock: until then the cache rests.
    rests_until: AtomicU64,
    evictions: Mutex<Evictions>,
}

/// What was evicted by this process.
#[derive(Debug, Default)]
struct Evictions {
    count: u64,
    /// Answers that the cache did not let go of, because it rested or failed, and until when it may have them. They are not given out, and
    /// evicting them is tried again.
    owed: HashMap<RecordId, Moment>,
}

/// How many evictions may be owed; with more, the cache rests until all of its answers have run out.
const MOST_OWED: usize = 10_000;

impl RedisCache {
    /// A cache on the connection, and under the prefix, of this store. Its entries are not records: the store does not see them.
    #[must_use]
    pub fn new(redis: RedisStore) -> Self {
        let evictions = Mutex::default();
        Self { redis, longest: Duration::from_secs(60), rests_until: AtomicU64::new(0), evictions }
    }

    /// For how long an answer is kept at most; also for how long it may outlive a `forget` by a process with another cache.
    #[must_use]
    pub fn keep_for(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    fn key(&self, id: &RecordId) -> String {
        format!("{}near:{{{id}}}", self.redis.keys.prefix())
    }

    /// Runs the step, unless the cache rests; a failure or no answer lets it rest.
    async fn briefly<T>(&self, step: impl Future<Output = Result<T, Fault>>) -> Option<T> {
        if SystemClock.now().as_micros() < self.rests_until.load(Ordering::Relaxed) {
            return None;
        }
        match tokio::time::timeout(PATIENCE, step).await {
            Ok(Ok(done)) => return Some(done),
            Ok(Err(fault)) => {
                tracing::warn!(cause = %fault.cause(), "the near cache failed; it is left alone for a second")
            }
            Err(_) => tracing::warn!("the near cache does not answer; it is left alone for a second"),
        }
        self.rest(REST);
        None
    }

    fn rest(&self, span: Duration) {
        self.rests_until.fetch_max(SystemClock.now().plus(span).as_micros(), Ordering::Relaxed);
    }

    /// Deletes an answer. Returns whether the cache said so.
    async fn delete(&self, id: &RecordId) -> bool {
        let mut command = redis::cmd("DEL");
        command.arg(self.key(id));
        self.briefly(self.redis.link.send(&command)).await.is_some()
    }

    /// Whether what the cache has of this record counts. An eviction that is still owed is made up for first.
    async fn is_current(&self, id: &RecordId) -> bool {
        let owed = self.evictions.lock().owed.get(id).copied();
        match owed {
            None => true,
            Some(until) if SystemClock.now() < until && !self.delete(id).await => false,
            Some(_) => {
                self.evictions.lock().owed.remove(id);
                true
            }
        }
    }

    fn owe(&self, id: &RecordId) {
        let now = SystemClock.now();
        let mut evictions = self.evictions.lock();
        evictions.owed.insert(*id, now.plus(self.longest));
        if evictions.owed.len() > MOST_OWED {
            evictions.owed.retain(|_, until| now < *until);
        }
        if evictions.owed.len() > MOST_OWED {
            evictions.owed.clear();
            self.rest(self.longest);
        }
    }
}

#[async_trait]
impl NearCache for RedisCache {
    fn longest(&self) -> Duration {
        self.longest
    }

    async fn get(&self, id: &RecordId) -> Option<Snapshot> {
        if !self.is_current(id).await {
            return None;
        }
        // So short that it is sent whole.
        let mut command = redis::cmd("EVAL");
        command.arg(include_str!("scripts/near.lua")).arg(1).arg(self.key(id));
        let Value::Array(reply) = self.briefly(self.redis.link.send(&command)).await? else { return None };
        let [Value::BulkString(value), Value::Int(left)] = &reply[..] else { return None };
        let left = Duration::from_millis(u64::try_from(*left).ok()?);
        // Damage, or the form of another release: the truth will say.
        decode(Bytes::copy_from_slice(value), left).ok()
    }

    fn mark(&self, _: &RecordId) -> u64 {
        self.evictions.lock().count
    }

    async fn put(&self, id: &RecordId, snapshot: &Snapshot, span: Duration, mark: u64) {
        if self.mark(id) != mark {
            return;
        }
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let Some(value) = encode(snapshot, millis).filter(|_| millis > 0) else { return };
        let mut command = redis::cmd("SET");
        command.arg(self.key(id)).arg(&value[..]).arg("PX").arg(millis);
        self.briefly(self.redis.link.send(&command)).await;
        // Evicted while it was on its way: the two may have come in either order.
        if self.mark(id) != mark {
            self.evict(id).await;
        }
    }

    async fn evict(&self, id: &RecordId) {
        self.evictions.lock().count += 1;
        if !self.delete(id).await {
            self.owe(id);
        }
    }
}

impl fmt::Debug for RedisCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCache")
            .field("redis", &self.redis)
            .field("longest", &self.longest)
            .finish_non_exhaustive()
    }
}

/// A completed record, with the time for which it is put; nothing else is cached.
fn encode(snapshot: &Snapshot, millis: u64) -> Option<Bytes> {
    let State::Completed(answer) = &snapshot.state else { return None };
    let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    let writer = Writer::with_capacity(b'N', 1, answer.0.len() + 160)
        .number(millis)
        .number(snapshot.fence.0)
        .number(u64::from(snapshot.fingerprint.version()))
        .bytes(snapshot.fingerprint.digest())
        .number(u64::from(snapshot.attempts))
        .number(micros(snapshot.age))
        .number(micros(snapshot.expires_in))
        .bytes(snapshot.label.route.as_bytes())
        .bytes(snapshot.label.key.as_bytes())
        .bytes(snapshot.label.scope.as_bytes())
        .bytes(&answer.0);
    Some(writer.finish())
}

fn decode(value: Bytes, left: Duration) -> Result<Snapshot, CodecError> {
    let invalid = |what: &str| CodecError::Invalid(what.to_owned());
    let mut reader = Reader::new(value, b'N', 1)?;
    let passed = Duration::from_millis(reader.number()?).saturating_sub(left);
    let fence = Fence(reader.number()?);
    let version = u8::try_from(reader.number()?).map_err(|_| invalid("the version of a fingerprint"))?;
    let digest = <[u8; 32]>::try_from(&reader.bytes()?[..]).map_err(|_| invalid("a digest"))?;
    let attempts = u32::try_from(reader.number()?).map_err(|_| invalid("the number of attempts"))?;
    let age = Duration::from_micros(reader.number()?) + passed;
    let expires_in = Duration::from_micros(reader.number()?).saturating_sub(passed);
    let route = std::str::from_utf8(&reader.bytes()?).map_err(|_| invalid("a route"))?.into();
    let mut hash =
        || Ok(Hash16::from_bytes(<[u8; 16]>::try_from(&reader.bytes()?[..]).map_err(|_| invalid("a hash"))?));
    let label = Label { route, key: hash()?, scope: hash()? };
    let state = State::Completed(Answer(reader.bytes()?));
    reader.finish()?;
    let fingerprint = Fingerprint::from_parts(version, digest);
    Ok(Snapshot { state, fence, fingerprint, attempts, age, expires_in, label })
}
