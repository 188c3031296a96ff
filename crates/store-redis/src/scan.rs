//! One pass over all records, by SCAN: it does not block the server, sees each record that is there all the time, and may
//! see one more than once.

use bytes::Bytes;
use onlyonce_core::machine::Record;
use onlyonce_core::{Listed, Moment, RecordId};
use redis::{Cmd, Pipeline, Value};

use crate::fault::Fault;
use crate::link::{Link, Node};
use crate::store::RedisStore;
use crate::stored::{self, HEAD};

/// How many keys the server looks at in one step; others are served between two steps.
const STEP: usize = 1000;
/// How much of a record is read at first: the answer may be large, and is not looked at here.
const BEGINNING: usize = HEAD + 378;

/// A pass that goes on from step to step.
pub(crate) struct Scan<'a> {
    store: &'a RedisStore,
    nodes: std::vec::IntoIter<Node>,
    at: Option<(Node, Vec<u8>)>,
}

/// A record with no more than the beginning of its answer, and the server's time at which it was read.
pub(crate) type Seen = (RecordId, Record, Moment);

impl RedisStore {
    pub(crate) async fn scan(&self) -> Result<Scan<'_>, Fault> {
        let nodes = self.link.nodes().await?.into_iter();
        Ok(Scan { store: self, nodes, at: None })
    }
}

impl Scan<'_> {
    /// The ids of some more records; `None` at the end.
    pub(crate) async fn ids(&mut self) -> Result<Option<(Node, Vec<RecordId>)>, Fault> {
        let Some((node, cursor)) =
            self.at.take().or_else(|| self.nodes.next().map(|node| (node, b"0".to_vec())))
        else {
            return Ok(None);
        };
        let keys = &self.store.keys;
        let mut command = redis::cmd("SCAN");
        command.arg(&cursor).arg("MATCH").arg(keys.pattern()).arg("COUNT").arg(STEP);
        let reply = self.store.link.send_to(&node, &command).await?;
        let (cursor, found): (Vec<u8>, Vec<Vec<u8>>) =
            redis::from_redis_value(reply).map_err(|cause| Fault::Sent(cause.into()))?;
        if cursor != b"0" {
            self.at = Some((node.clone(), cursor));
        }
        Ok(Some((node, found.iter().filter_map(|key| keys.id(key)).collect())))
    }

    /// Some more records that have not expired; `None` at the end.
    pub(crate) async fn records(&mut self) -> Result<Option<Vec<Seen>>, Fault> {
        let Some((node, ids)) = self.ids().await? else { return Ok(None) };
        if ids.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let mut commands = Pipeline::with_capacity(ids.len() + 1);
        commands.cmd("TIME");
        for id in &ids {
            commands.add_command(beginning(self.store.keys.record(id).record(), BEGINNING));
        }
        let replies = self.store.link.send_all_to(&node, &commands).await?;
        let mut replies = replies.into_iter();
        let now = time(replies.next())?;
        let mut records = Vec::with_capacity(ids.len());
        for (id, reply) in ids.into_iter().zip(replies) {
            match self.record(&id, reply).await? {
                Some(record) if !record.is_expired(now) => records.push((id, record, now)),
                _ => {}
            }
        }
        Ok(Some(records))
    }

    /// What is no record is left out, with a warning: one damaged value must not hide all others.
    async fn record(&self, id: &RecordId, reply: Value) -> Result<Option<Record>, Fault> {
        let Value::BulkString(value) = reply else {
            tracing::warn!(%id, "what is stored under the name of this record is none");
            return Ok(None);
        };
        let value = Bytes::from(value);
        // Gone since the scan saw it.
        if value.is_empty() {
            return Ok(None);
        }
        let value = match route_ends(&value) {
            Some(end) if end + Listed::ANSWER_BYTES > value.len() && value.len() == BEGINNING => {
                let key = self.store.keys.record(id);
                whole(&self.store.link, key.record(), end + Listed::ANSWER_BYTES).await?
            }
            _ => value,
        };
        let record = stored::decode(value);
        Ok(record.inspect_err(|damaged| tracing::warn!(%id, %damaged, "a record can't be read")).ok())
    }
}

fn beginning(key: &str, length: usize) -> Cmd {
    let mut command = redis::cmd("GETRANGE");
    command.arg(key).arg(0).arg(length - 1);
    command
}

async fn whole(link: &Link, key: &str, length: usize) -> Result<Bytes, Fault> {
    let reply = link.send(&beginning(key, length)).await?;
    Ok(Bytes::from(redis::from_redis_value::<Vec<u8>>(reply).map_err(|cause| Fault::Sent(cause.into()))?))
}

fn route_ends(value: &[u8]) -> Option<usize> {
    let length = value.get(HEAD - 4..HEAD)?.try_into().ok()?;
    Some(HEAD + usize::try_from(u32::from_be_bytes(length)).ok()?)
}

fn time(reply: Option<Value>) -> Result<Moment, Fault> {
    let reply = reply.unwrap_or(Value::Nil);
    let (seconds, micros): (u64, u64) = reply
        .extract_error()
        .and_then(|reply| redis::from_redis_value(reply).map_err(Into::into))
        .map_err(Fault::Sent)?;
    Ok(Moment::from_micros(seconds * 1_000_000 + micros))
}
