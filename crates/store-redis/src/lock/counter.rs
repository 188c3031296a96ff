//! Counting how often something was asked for, for a while.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::lock::LockName;
use onlyonce_core::{ErrorKind, StoreError};
use redis::Value;

use super::names::Names;
use super::script;
use super::single::ttl;
use crate::fault::{BACKEND, Damaged};
use crate::link::Link;

/// Counts under a key, and forgets it when a span since the first time is over. Made by
/// [`RedisLocks::once_counter`](super::RedisLocks::once_counter).
///
/// The simplest of all guards against doing something twice: do it if it is the [`first`](Self::first) time. It remembers no
/// answer, and a first one that fails has used up the key until it is [`reset`](Self::reset): where that matters, use
/// [`Idempotency`](onlyonce_core::Idempotency). Counting and its expiry are one script, so that no key lives for ever.
///
/// ```no_run
/// # async fn remind() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// use onlyonce_store_redis::RedisLocks;
/// let reminders = RedisLocks::open("redis://localhost").await?.once_counter(Duration::from_secs(24 * 3600));
/// if reminders.first("reminder:user-7").await? {
///     println!("a first time in a day");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct OnceCounter {
    link: Arc<Link>,
    names: Names,
    span: Duration,
}

impl OnceCounter {
    pub(super) fn new(link: Arc<Link>, names: Names, span: Duration) -> Self {
        Self { link, names, span }
    }

    /// Counts, and says whether this is the first time.
    ///
    /// # Errors
    /// If the key is unusable or the server fails. Where the failure is [ambiguous](ErrorKind::Ambiguous) it may have been
    /// counted, so that asking again would say "not the first": do not do it, or reset.
    pub async fn first(&self, key: &str) -> Result<bool, StoreError> {
        Ok(self.hit(key).await? == 1)
    }

    /// Counts, and says how often it was counted since the first time.
    ///
    /// # Errors
    /// As [`first`](Self::first).
    pub async fn hit(&self, key: &str) -> Result<u64, StoreError> {
        let key = self.name(key, "count")?;
        let reply = script::COUNT.run(&self.link, &[&key], &[ttl(self.span).as_bytes()]).await;
        match reply.map_err(|fault| fault.during("count"))? {
            Value::Int(count) if count > 0 => Ok(count.unsigned_abs()),
            _ => Err(Damaged("a count is not above 0").during("count")),
        }
    }

    /// How often it was counted, without counting.
    ///
    /// # Errors
    /// If the key is unusable or the server fails.
    pub async fn count(&self, key: &str) -> Result<u64, StoreError> {
        let mut get = redis::cmd("GET");
        get.arg(self.name(key, "read a count")?);
        let reply = self.link.send(&get).await.map_err(|fault| fault.during("read a count"))?;
        let count: Option<u64> = redis::from_redis_value(reply)
            .map_err(|_| Damaged("a count is not a number").during("read a count"))?;
        Ok(count.unwrap_or(0))
    }

    /// Forgets the key, and says whether it was there: the next time is a first one.
    ///
    /// # Errors
    /// If the key is unusable or the server fails.
    pub async fn reset(&self, key: &str) -> Result<bool, StoreError> {
        let mut delete = redis::cmd("DEL");
        delete.arg(self.name(key, "reset")?);
        let reply = self.link.send(&delete).await.map_err(|fault| fault.during("reset"))?;
        Ok(reply == Value::Int(1))
    }

    fn name(&self, key: &str, call: &'static str) -> Result<String, StoreError> {
        let name =
            LockName::new(key).map_err(|error| StoreError::new(ErrorKind::Rejected, BACKEND, call, error))?;
        Ok(self.names.counter(&name))
    }
}

impl fmt::Debug for OnceCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceCounter").field("span", &self.span).finish_non_exhaustive()
    }
}
