//! The index: for each shard, the ids of the records that are not settled, by when they were created.
//!
//! The scripts that begin and settle keep it, in the same atomic step. Only what expires unsettled leaves its id behind, which
//! is taken out by who finds it: `lapsed`, or a sweep, which looks at the oldest of a few shards each time.

use std::sync::atomic::{AtomicU16, Ordering};

use futures_util::{StreamExt, TryStreamExt, stream};
use onlyonce_core::RecordId;

use crate::fault::Fault;
use crate::keys::SHARDS;
use crate::record_script as script;
use crate::store::RedisStore;

/// How many shards are asked at a time.
const AT_ONCE: usize = 64;
/// How many shards a sweep looks at: all of them within a quarter of an hour, at one sweep a minute.
const A_SWEEP: u16 = SHARDS / 16;
/// How many of the oldest of a shard a sweep looks at.
const OLDEST: isize = 16;

/// Where the next sweep goes on.
#[derive(Debug, Default)]
pub(crate) struct Swept(AtomicU16);

/// When it was created, in microseconds since 1970, and which it is.
pub(crate) type Entry = (u64, RecordId);

impl RedisStore {
    /// All records that are not settled, the oldest first.
    pub(crate) async fn unsettled(&self) -> Result<Vec<Entry>, Fault> {
        let mut entries = self.entries(0..SHARDS, -1).await?;
        entries.sort_unstable();
        Ok(entries)
    }

    /// Takes out of a few shards what has expired, and says how many that were.
    pub(crate) async fn tidy_some(&self) -> Result<usize, Fault> {
        let from = self.swept.0.fetch_add(A_SWEEP, Ordering::Relaxed) % SHARDS;
        let entries = self.entries(from..from + A_SWEEP, OLDEST - 1).await?;
        let tidied = stream::iter(entries.into_iter().map(|(_, id)| self.tidy(id))).buffer_unordered(AT_ONCE);
        tidied.try_fold(0, |all, one| async move { Ok(all + usize::from(one)) }).await
    }

    /// Takes this record out of the index if it has expired.
    pub(crate) async fn tidy(&self, id: RecordId) -> Result<bool, Fault> {
        let done = script::TIDY.run(&self.link, &self.keys.record(&id), &[]).await?;
        Ok(done == redis::Value::Int(1))
    }

    async fn entries(&self, shards: std::ops::Range<u16>, last: isize) -> Result<Vec<Entry>, Fault> {
        let reads = stream::iter(shards.map(|shard| async move {
            let mut command = redis::cmd("ZRANGE");
            command.arg(self.keys.index(shard)).arg(0).arg(last).arg("WITHSCORES");
            let reply = self.link.send(&command).await?;
            redis::from_redis_value::<Vec<(String, f64)>>(reply).map_err(|cause| Fault::Sent(cause.into()))
        }));
        let mut entries = Vec::new();
        let mut reads = reads.buffer_unordered(AT_ONCE);
        while let Some(shard) = reads.try_next().await? {
            entries.extend(
                shard.into_iter().filter_map(|(id, created)| Some((created as u64, id.parse().ok()?))),
            );
        }
        Ok(entries)
    }
}
