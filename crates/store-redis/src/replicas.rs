//! Waiting for replicas: a write is acknowledged only when so many of them have it.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use onlyonce_core::StoreError;
use redis::{Cmd, RedisError, Value};

use crate::fault::{BACKEND, Fault};

/// How many replicas must have a write, and how long to wait for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub(crate) count: u32,
    pub(crate) patience: Duration,
}

impl Replicas {
    /// Answered with the number of replicas that have all that was written on this connection.
    pub(crate) fn wait(&self) -> Cmd {
        let mut command = redis::cmd("WAIT");
        // Not 0, which would be for ever.
        command.arg(self.count).arg(self.patience.as_millis().max(1).to_string());
        command
    }

    /// An error if too few have it. The write is there, and may be lost: who made it has to make it again, and hears then.
    pub(crate) fn reached(&self, have: u32, call: &'static str) -> Result<(), StoreError> {
        if have >= self.count {
            return Ok(());
        }
        Err(StoreError::ambiguous(
            BACKEND,
            call,
            NotReplicated { have, want: self.count, within: self.patience },
        ))
    }
}

/// Whether a script replied that it wrote: what was there before has nothing to wait for. A script that says so must have written,
/// also when it is repeated: a `WAIT` after nothing says nothing.
pub(crate) fn wrote(reply: &Value) -> bool {
    match reply {
        Value::Int(done) => *done > 0,
        // An attempt. Two parts are a record that somebody else has.
        Value::Array(parts) => parts.len() == 3,
        _ => false,
    }
}

/// What a script replied, and how many replicas have it. A `WAIT` that failed says nothing about a write that was made before it.
pub(crate) fn judged(reply: Value, waited: Result<u32, RedisError>) -> Result<(Value, u32), Fault> {
    match waited {
        Err(cause) if wrote(&reply) => Err(Fault::Unclear(cause)),
        waited => Ok((reply, waited.unwrap_or(0))),
    }
}

/// The reply to a `WAIT`.
pub(crate) fn have(reply: Value) -> Result<u32, RedisError> {
    Ok(redis::from_redis_value(reply.extract_error()?)?)
}

/// Too few replicas have it in time.
#[derive(Debug)]
struct NotReplicated {
    have: u32,
    want: u32,
    within: Duration,
}

impl fmt::Display for NotReplicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { have, want, within } = self;
        write!(
            f,
            "{have} of {want} replicas had it within {within:?}: look after the replicas, or ask for fewer"
        )
    }
}

impl Error for NotReplicated {}
