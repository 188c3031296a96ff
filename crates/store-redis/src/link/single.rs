//! One server, on one connection that all calls share and that is made anew when it breaks.
//!
//! The driver's own reconnecting connection does not say whether a command was sent before it failed; this one does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_core::{Clock, Moment, SystemClock};
use parking_lot::Mutex;
use redis::{Cmd, Pipeline, RedisError, Value};

use super::Finder;
use super::connection::Connection;
use crate::fault::{self, Fault};
use crate::replicas::{self, Replicas};

/// For so long after a failed attempt to connect, others fail with it instead of trying one after the other.
const REST: Duration = Duration::from_millis(100);

pub(crate) struct Single {
    finder: Finder,
    connect: Duration,
    response: Duration,
    current: Mutex<Option<Current>>,
    /// Held while connecting; when and why that failed last.
    connecting: tokio::sync::Mutex<Option<(Moment, RedisError)>>,
    made: AtomicU64,
}

/// A connection, its number, and what is known of its replicas.
type Current = (u64, Connection, Arc<Acknowledged>);

/// What replicas have of the writes on one connection. One `WAIT` speaks for all writes before it, so that callers who come
/// while one is under way share the next.
#[derive(Default)]
struct Acknowledged {
    /// How many writes were answered.
    answered: AtomicU64,
    /// How many of them the last `WAIT` spoke for, and how many replicas had them.
    last: tokio::sync::Mutex<(u64, u32)>,
}

impl Acknowledged {
    /// How many replicas have the write that was just answered on this connection.
    async fn wait(&self, connection: &mut Connection, replicas: &Replicas) -> Result<u32, RedisError> {
        let own = self.answered.fetch_add(1, Ordering::SeqCst) + 1;
        let mut last = self.last.lock().await;
        if last.0 < own {
            let all = self.answered.load(Ordering::SeqCst);
            *last = (all, replicas::have(connection.send(&replicas.wait()).await?)?);
        }
        Ok(last.1)
    }
}

impl Single {
    pub(crate) fn new(finder: Finder, connect: Duration, response: Duration) -> Self {
        Self {
            finder,
            connect,
            response,
            current: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(None),
            made: AtomicU64::new(0),
        }
    }

    pub(crate) async fn send(&self, command: &Cmd) -> Result<Value, Fault> {
        let (number, mut connection, _) = self.connection().await.map_err(Fault::NotSent)?;
        let reply = connection.send(command).await;
        reply.map_err(|cause| self.failed(number, cause))
    }

    pub(crate) async fn send_replicated(
        &self,
        command: &Cmd,
        replicas: &Replicas,
    ) -> Result<(Value, u32), Fault> {
        let (number, mut connection, acknowledged) = self.connection().await.map_err(Fault::NotSent)?;
        let reply = connection.send(command).await;
        let reply = reply.map_err(|cause| self.failed(number, cause))?;
        if !replicas::wrote(&reply) {
            return Ok((reply, 0));
        }
        let have = acknowledged.wait(&mut connection, replicas).await;
        replicas::judged(reply, have.map_err(|cause| self.failed(number, cause).into_cause()))
    }

    pub(crate) async fn send_all(&self, commands: &Pipeline) -> Result<Vec<Value>, Fault> {
        let (number, mut connection, _) = self.connection().await.map_err(Fault::NotSent)?;
        let replies = connection.send_all(commands).await;
        replies.map_err(|cause| self.failed(number, cause))
    }

    fn failed(&self, number: u64, cause: RedisError) -> Fault {
        // Also after a time-out: the other side may be gone without a word, and then nothing else would tell. And a primary
        // that became a replica keeps its connections; its name, or the Sentinels, may lead elsewhere by now.
        if cause.is_io_error() || cause.is_unrecoverable_error() || fault::says(&cause, "READONLY") {
            self.current.lock().take_if(|(current, ..)| *current == number);
        }
        Fault::Sent(cause)
    }

    /// The connection that there is. One that is known to have ended is none: nothing has to be sent to find that out.
    fn current(&self) -> Option<Current> {
        self.current.lock().as_ref().filter(|(_, connection, _)| connection.may_be_open()).cloned()
    }

    async fn connection(&self) -> Result<Current, RedisError> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let mut last_failure = self.connecting.lock().await;
        // Somebody else may have connected, or failed to, while this call waited.
        if let Some(current) = self.current() {
            return Ok(current);
        }
        if let Some((at, cause)) = &*last_failure
            && SystemClock.now().since(*at) < REST
        {
            return Err(cause.clone());
        }
        match self.finder.connect(self.connect, self.response).await {
            Ok(connection) => {
                *last_failure = None;
                let number = self.made.fetch_add(1, Ordering::Relaxed);
                let current = (number, connection, Arc::default());
                *self.current.lock() = Some(current.clone());
                Ok(current)
            }
            Err(cause) => {
                *last_failure = Some((SystemClock.now(), cause.clone()));
                Err(cause)
            }
        }
    }
}
