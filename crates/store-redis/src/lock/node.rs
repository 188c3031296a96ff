//! One of the servers that vote on a lock.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::lock::{LockName, Release};
use onlyonce_core::{Owner, StoreError};
use redis::Value;
use tokio::sync::Notify;

use super::names::{Names, Shard, value};
use super::script;
use super::single::{millis, released, ttl};
use crate::fault::Damaged;
use crate::link::{Finder, Link, Single};
use crate::script::Script;
use crate::wakes::Wakes;

/// A server of its own, with a connection and a time-out of its own.
pub(super) struct Node {
    link: Link,
    wakes: Wakes,
    names: Names,
}

/// What a node says to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vote {
    Granted,
    Taken(Option<Duration>),
}

/// What a node says to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// It was the owner's all the time.
    Extended,
    /// It was nobody's, and is the owner's again.
    Repaired,
    /// It is somebody else's.
    Others,
}

impl Node {
    /// Does not connect yet: a node may be down.
    pub(super) fn new(finder: Finder, names: Names, timeout: Duration) -> Arc<Self> {
        let wakes = Wakes::listen(vec![finder.clone()], names.channel().to_owned(), timeout);
        Arc::new(Self { link: Link::Single(Box::new(Single::new(finder, timeout, timeout))), wakes, names })
    }

    async fn run(
        &self,
        script: &Script,
        call: &'static str,
        name: &LockName,
        arguments: &[&[u8]],
    ) -> Result<Value, StoreError> {
        let lock = self.names.lock(name);
        // Whole, because nobody waits for the last nodes: one that asked for the script first would be sent it after the release, and
        // keep a lock that nobody has.
        script.run_whole(&self.link, &[&lock], arguments).await.map_err(|fault| fault.during(call))
    }

    pub(super) async fn ping(&self) -> Result<(), redis::RedisError> {
        let pong = self.link.send(&redis::cmd("PING")).await;
        pong.map(drop).map_err(|fault| fault.cause().clone())
    }

    pub(super) async fn claim(
        &self,
        name: &LockName,
        owner: &Owner,
        span: Duration,
    ) -> Result<Vote, StoreError> {
        let reply = self.run(&script::CLAIM, "acquire", name, &[&value(owner), ttl(span).as_bytes()]).await?;
        match reply {
            Value::Int(1) => Ok(Vote::Granted),
            Value::Array(left) => match left[..] {
                [Value::Int(left)] => Ok(Vote::Taken(millis(left))),
                _ => Err(Damaged("the reply to a claim is of no known form").during("acquire")),
            },
            _ => Err(Damaged("the reply to a claim is of no known form").during("acquire")),
        }
    }

    pub(super) async fn keep(
        &self,
        name: &LockName,
        owner: &Owner,
        span: Duration,
    ) -> Result<Kept, StoreError> {
        let reply = self.run(&script::REPAIR, "renew", name, &[&value(owner), ttl(span).as_bytes()]).await?;
        match reply {
            Value::Int(1) => Ok(Kept::Extended),
            Value::Int(2) => Ok(Kept::Repaired),
            Value::Int(0) => Ok(Kept::Others),
            _ => Err(Damaged("the reply to a renewal is of no known form").during("renew")),
        }
    }

    pub(super) async fn release(&self, name: &LockName, owner: &Owner) -> Result<Release, StoreError> {
        let reply = self.run(&script::RELEASE, "release", name, &[&value(owner)]).await?;
        released(&reply).map_err(|damaged| damaged.during("release"))
    }

    /// Whether it is free here; and notes that somebody waits.
    pub(super) async fn left(&self, name: &LockName) -> Result<Option<Duration>, StoreError> {
        match self.run(&script::WAIT, "wait", name, &[b"1"]).await? {
            Value::Int(0) => Ok(None),
            Value::Int(left) => Ok(Some(millis(left).unwrap_or(Duration::MAX))),
            _ => Err(Damaged("the reply to a wait is of no known form").during("wait")),
        }
    }

    /// What wakes who waits for a release at this node.
    pub(super) fn freed(&self, name: &LockName) -> &Notify {
        self.wakes.of(&Shard::of(name).id())
    }
}
