//! Grants kept in a Redis.

use std::fmt;

use async_trait::async_trait;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Client, RedisError, Script};

use super::{Grant, GrantError, Grants, Holder, Request};

/// Keys are two: the numbers by the end of their last window, and who holds them since when. One slot on a Cluster.
const GRANT: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local holder, worker, workers, span = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local until_ = now + span
if worker ~= '' then
  local held = redis.call('HGET', KEYS[2], worker)
  if held and string.sub(held, 1, 32) == holder then
    local last = tonumber(redis.call('ZSCORE', KEYS[1], worker))
    if last > until_ then until_ = last end
    redis.call('ZADD', KEYS[1], string.format('%.0f', until_), worker)
    return {worker, string.sub(held, 34), string.format('%.0f', until_)}
  end
end
local idle = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now), 'LIMIT', 0, 1)
worker = idle[1]
if not worker then
  local known = redis.call('ZCARD', KEYS[1])
  if known >= workers then return {} end
  worker = tostring(known)
end
local from = string.format('%.0f', now)
redis.call('HSET', KEYS[2], worker, holder .. ':' .. from)
redis.call('ZADD', KEYS[1], string.format('%.0f', until_), worker)
return {worker, from, string.format('%.0f', until_)}
";

const RELEASE: &str = r"
local held = redis.call('HGET', KEYS[2], ARGV[2])
if not held or string.sub(held, 1, 32) ~= ARGV[1] then return 0 end
local used, last = tonumber(ARGV[3]), tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2]))
local from = tonumber(string.sub(held, 34))
if used < from then used = from end
if used < last then redis.call('ZADD', KEYS[1], string.format('%.0f', used), ARGV[2]) end
redis.call('HSET', KEYS[2], ARGV[2], string.rep('-', 32) .. ':' .. string.sub(held, 34))
return 1
";

/// Grants kept in a Redis, judged by its clock: one round trip each.
///
/// Grants are kept for good (two small keys). If Redis loses them, as a failover without the last writes or an empty restart
/// does, the same window may be granted twice: use persistence, and a span that is longer than what a failover may lose.
///
/// ```no_run
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// use onlyonce_id::{Layout, RedisGrants, Snowflake};
/// let ids = Snowflake::open(Layout::STANDARD, RedisGrants::open("redis://localhost", "shop")?).await?;
/// # Ok(()) }
/// ```
pub struct RedisGrants {
    link: Link,
    keys: [String; 2],
    grant: Script,
    release: Script,
}

enum Link {
    /// Connected when it is needed, and again after a failure.
    Own {
        client: Box<Client>,
        current: tokio::sync::Mutex<Option<MultiplexedConnection>>,
    },
    Given(Box<dyn Copies>),
}

trait Copies: Send + Sync {
    fn copy(&self) -> Box<dyn ConnectionLike + Send>;
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Copies for C {
    fn copy(&self) -> Box<dyn ConnectionLike + Send> {
        Box::new(self.clone())
    }
}

impl fmt::Debug for RedisGrants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisGrants").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl RedisGrants {
    /// Grants in the Redis at `url`, for all generators that name the same `group`. Different layouts need different groups.
    ///
    /// # Errors
    /// If the URL can't be read. It is connected to later.
    pub fn open(url: &str, group: &str) -> Result<Self, GrantError> {
        let client = Box::new(Client::open(url).map_err(GrantError::unavailable)?);
        Ok(Self::new(Link::Own { client, current: tokio::sync::Mutex::new(None) }, group))
    }

    /// The same on a connection that you have: one that reconnects by itself, or to a Cluster.
    pub fn on(connection: impl ConnectionLike + Clone + Send + Sync + 'static, group: &str) -> Self {
        Self::new(Link::Given(Box::new(connection)), group)
    }

    fn new(link: Link, group: &str) -> Self {
        let keys = ["until", "held"].map(|what| format!("onlyonce:{{workers:{group}}}:{what}"));
        Self { link, keys, grant: Script::new(GRANT), release: Script::new(RELEASE) }
    }

    async fn run<R: redis::FromRedisValue>(
        &self,
        script: &Script,
        arguments: &[String],
    ) -> Result<R, GrantError> {
        let mut call = script.prepare_invoke();
        self.keys.iter().for_each(|key| _ = call.key(key));
        arguments.iter().for_each(|argument| _ = call.arg(argument));
        let reply = match &self.link {
            Link::Given(connection) => call.invoke_async(&mut Shim(connection.copy())).await,
            Link::Own { client, current } => {
                let mut current = current.lock().await;
                let connected = match current.take() {
                    Some(connection) => Ok(connection),
                    None => client.get_multiplexed_async_connection().await,
                };
                let mut connection = connected.map_err(GrantError::unavailable)?;
                let reply = call.invoke_async(&mut connection).await;
                // After a failure it is connected to anew: the primary may be elsewhere by now.
                *current = reply.is_ok().then_some(connection);
                reply
            }
        };
        reply.map_err(|cause: RedisError| GrantError::unavailable(cause))
    }
}

/// A boxed connection, as the driver's scripts want it.
struct Shim(Box<dyn ConnectionLike + Send>);

impl ConnectionLike for Shim {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a redis::Cmd) -> redis::RedisFuture<'a, redis::Value> {
        self.0.req_packed_command(cmd)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        cmd: &'a redis::Pipeline,
        offset: usize,
        count: usize,
    ) -> redis::RedisFuture<'a, Vec<redis::Value>> {
        self.0.req_packed_commands(cmd, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.0.get_db()
    }
}

#[async_trait]
impl Grants for RedisGrants {
    async fn grant(&self, request: &Request) -> Result<Grant, GrantError> {
        let worker = request.worker.map(|worker| worker.to_string()).unwrap_or_default();
        let arguments = [
            request.holder.to_string(),
            worker,
            request.workers.to_string(),
            request.span.as_millis().to_string(),
        ];
        match self.run::<Vec<u64>>(&self.grant, &arguments).await?[..] {
            [worker, from, until] => Ok(Grant { worker, from, until }),
            _ => Err(GrantError::Exhausted { workers: request.workers }),
        }
    }

    async fn release(&self, holder: Holder, worker: u64, used_until: u64) -> Result<(), GrantError> {
        let arguments = [holder.to_string(), worker.to_string(), used_until.to_string()];
        self.run::<u64>(&self.release, &arguments).await.map(drop)
    }
}
