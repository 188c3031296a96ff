//! A connection to one server that all callers share: what they send goes out together, and replies come back in that order.
//!
//! The driver has such a connection too. It passes every command through a channel and sets a timer for it, which costs more
//! than the command itself. Here callers write into one buffer; one task sends it and hands out the replies, and one timer
//! watches the oldest command. The order of commands is that in which they were given.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use onlyonce_core::{Clock, Moment, SystemClock};
use parking_lot::Mutex;
use redis::{Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion, RedisError, Value};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::resp;

/// How much is read at a time.
const CHUNK: usize = 16 * 1024;
/// A buffer that grew beyond this is not kept.
const LARGE: usize = 1024 * 1024;

/// Clones are the same connection, which ends with the last of them.
#[derive(Clone)]
pub(crate) struct Wire(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    given: Notify,
}

#[derive(Default)]
struct Queue {
    /// What is not sent yet.
    out: Vec<u8>,
    /// Who waits for a reply, in the order of commands.
    waiting: VecDeque<Waiting>,
    /// Why nothing is sent any more.
    ended: Option<RedisError>,
}

struct Waiting {
    since: Moment,
    reply: oneshot::Sender<Result<Value, RedisError>>,
}

impl Wire {
    /// Whether there is such a connection to this server; the driver does the rest.
    pub(super) fn is_for(info: &ConnectionInfo) -> bool {
        let plain = matches!(info.addr(), ConnectionAddr::Tcp(..));
        plain && matches!(info.redis_settings().protocol(), ProtocolVersion::RESP2)
    }

    /// Connects within `connect`. A server that leaves a command without a reply for as long as `response` is given up.
    pub(super) async fn connect(
        info: &ConnectionInfo,
        connect: Duration,
        response: Duration,
    ) -> Result<Self, RedisError> {
        let ConnectionAddr::Tcp(host, port) = info.addr() else {
            return Err(RedisError::from((ErrorKind::InvalidClientConfig, "not a plain TCP address")));
        };
        let connected = async {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            let wire = Self::over(stream, response);
            wire.log_in(info).await?;
            Ok(wire)
        };
        timeout(connect, connected).await.unwrap_or_else(|_| Err(late()))
    }

    fn over(stream: TcpStream, response: Duration) -> Self {
        let shared = Arc::<Shared>::default();
        let task = tokio::spawn(carry(Ending(Arc::clone(&shared)), stream, response));
        Self(Arc::new(Handle { shared, task }))
    }

    async fn log_in(&self, info: &ConnectionInfo) -> Result<(), RedisError> {
        let settings = info.redis_settings();
        if let Some(password) = settings.password() {
            let mut command = redis::cmd("AUTH");
            command.arg(settings.username()).arg(password);
            self.send(&command).await?.extract_error().map_err(|cause| {
                let detail = cause.detail().unwrap_or_default().to_owned();
                (ErrorKind::AuthenticationFailed, "Password authentication failed", detail)
            })?;
        }
        if settings.db() != 0 {
            self.send(redis::cmd("SELECT").arg(settings.db())).await?.extract_error()?;
        }
        Ok(())
    }

    /// Whether commands are still sent.
    pub(super) fn is_open(&self) -> bool {
        !self.0.task.is_finished()
    }

    /// Sends a command. Dropped half-way, it may have been sent.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, RedisError> {
        let (reply, replied) = oneshot::channel();
        let since = SystemClock.now();
        {
            let mut queue = self.0.shared.queue.lock();
            if let Some(cause) = &queue.ended {
                return Err(cause.clone());
            }
            command.write_packed_command(&mut queue.out);
            queue.waiting.push_back(Waiting { since, reply });
        }
        self.0.shared.given.notify_one();
        replied.await.unwrap_or_else(|_| Err(closed()))
    }
}

/// What was taken out of the queue, and how much of it is sent.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Takes the next bytes, and leaves its own buffer for those after them.
    fn refill(&mut self, next: &mut Vec<u8>) {
        self.bytes.clear();
        self.sent = 0;
        if self.bytes.capacity() > LARGE {
            self.bytes = Vec::new();
        }
        std::mem::swap(&mut self.bytes, next);
    }
}

/// However the task ends, also with its runtime: nobody waits for it any longer.
struct Ending(Arc<Shared>);

impl Ending {
    fn end(&self, cause: &RedisError) {
        let mut queue = self.0.queue.lock();
        queue.ended.get_or_insert_with(|| cause.clone());
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        for waiting in waiting {
            // Who does not wait any more does not have to hear of it.
            let _ = waiting.reply.send(Err(cause.clone()));
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.end(&closed());
    }
}

async fn carry(ending: Ending, stream: TcpStream, patience: Duration) {
    if let Err(cause) = ending.0.exchange(&stream, patience).await {
        ending.end(&cause);
    }
}

impl Shared {
    /// Sends and receives until that fails.
    async fn exchange(&self, stream: &TcpStream, patience: Duration) -> Result<(), RedisError> {
        let (mut out, mut input) = (Outgoing::default(), BytesMut::with_capacity(CHUNK));
        let mut watch = interval((patience / 4).max(Duration::from_millis(1)));
        watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.write(stream, &mut out)?;
            let interest =
                if out.is_empty() { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
            tokio::select! {
                biased;
                ready = stream.ready(interest) => {
                    ready?;
                    self.read(stream, &mut input)?;
                }
                () = self.given.notified(), if out.is_empty() => {
                    // Callers that were just answered are about to send again: let them, and it all goes out in one piece.
                    if self.queue.lock().waiting.len() > 1 {
                        tokio::task::yield_now().await;
                    }
                }
                _ = watch.tick() => {
                    let oldest = self.queue.lock().waiting.front().map(|waiting| waiting.since);
                    if oldest.is_some_and(|since| SystemClock.now().since(since) >= patience) {
                        return Err(late());
                    }
                }
            }
        }
    }

    /// Sends what there is, as far as the socket takes it.
    fn write(&self, stream: &TcpStream, out: &mut Outgoing) -> Result<(), RedisError> {
        loop {
            if out.is_empty() {
                out.refill(&mut self.queue.lock().out);
                if out.is_empty() {
                    return Ok(());
                }
            }
            match stream.try_write(&out.bytes[out.sent..]) {
                Ok(0) => return Err(closed()),
                Ok(sent) => out.sent += sent,
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(cause) => return Err(cause.into()),
            }
        }
    }

    /// Receives what there is, and hands it out.
    fn read(&self, stream: &TcpStream, input: &mut BytesMut) -> Result<(), RedisError> {
        loop {
            input.reserve(CHUNK);
            match stream.try_read_buf(input) {
                Ok(0) => return Err(closed()),
                Ok(read) => {
                    self.hand_out(input)?;
                    // Most likely that was all.
                    if read < CHUNK {
                        return Ok(());
                    }
                }
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(cause) => return Err(cause.into()),
            }
        }
    }

    fn hand_out(&self, input: &mut BytesMut) -> Result<(), RedisError> {
        let (mut replies, mut used) = (Vec::new(), 0);
        while let Some((value, length)) = resp::parse(&input[used..])? {
            used += length;
            replies.push(value);
        }
        input.advance(used);
        let waiting: Vec<Waiting> = {
            let mut queue = self.queue.lock();
            if queue.waiting.len() < replies.len() {
                return Err(resp::nonsense("a reply to nothing"));
            }
            queue.waiting.drain(..replies.len()).collect()
        };
        for (waiting, reply) in waiting.into_iter().zip(replies) {
            // Who does not wait any more does not have to hear of it.
            let _ = waiting.reply.send(Ok(reply));
        }
        Ok(())
    }
}

fn closed() -> RedisError {
    RedisError::from(io::Error::new(io::ErrorKind::BrokenPipe, "the connection is closed"))
}

fn late() -> RedisError {
    RedisError::from(io::Error::from(io::ErrorKind::TimedOut))
}
