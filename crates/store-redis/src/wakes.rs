//! Hearing of changes that other processes make: one connection per store that listens on one channel.
//!
//! Only changes of records that somebody waits for are published (see `wait.lua`), so the channel is quiet unless calls
//! collide. A message says which record; it wakes whoever waits for it or for one of the same slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use onlyonce_core::RecordId;
use redis::RedisError;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::link::Finder;

const SLOTS: usize = 64;
/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often a quiet connection is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(10);

/// Ends listening when it is dropped.
#[derive(Debug)]
pub(crate) struct Wakes {
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    slots: [Notify; SLOTS],
    hears: AtomicBool,
}

impl Wakes {
    /// Listens at the first of these that answers, and at the next one when it goes away. Without any, nothing is heard.
    pub(crate) fn listen(finders: Vec<Finder>, channel: String, patience: Duration) -> Self {
        let shared =
            Arc::new(Shared { slots: [(); SLOTS].map(|()| Notify::new()), hears: AtomicBool::new(false) });
        let listener = (!finders.is_empty())
            .then(|| tokio::spawn(shared.clone().keep_listening(finders, channel, patience)));
        Self { shared, listener }
    }

    /// Whether changes are heard of just now.
    pub(crate) fn hears(&self) -> bool {
        self.shared.hears.load(Ordering::Acquire)
    }

    /// What wakes those who wait for this record; also when hearing begins or ends.
    pub(crate) fn of(&self, id: &RecordId) -> &Notify {
        self.shared.slot(id)
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}

/// The end of listening, also when its runtime is shut down: who waits must not rely on it.
struct Deaf(Arc<Shared>);

impl Drop for Deaf {
    fn drop(&mut self) {
        self.0.set_hears(false);
    }
}

impl Shared {
    fn slot(&self, id: &RecordId) -> &Notify {
        &self.slots[usize::from(id.as_bytes()[0]) % SLOTS]
    }

    /// Who waits has to look again: by itself if there is nothing to hear, and anew if there is.
    fn set_hears(&self, hears: bool) {
        self.hears.store(hears, Ordering::Release);
        self.slots.iter().for_each(Notify::notify_waiters);
    }

    async fn keep_listening(self: Arc<Self>, finders: Vec<Finder>, channel: String, patience: Duration) {
        let _deaf_in_the_end = Deaf(self.clone());
        let mut pause = Duration::from_millis(50);
        for finder in finders.iter().cycle() {
            let heard = self.listen(finder, &channel, patience).await;
            if self.hears.load(Ordering::Acquire) {
                self.set_hears(false);
                pause = Duration::from_millis(50);
            }
            // The address is in nobody's interest here, and the error never holds a password.
            tracing::debug!(cause = ?heard.err(), "changes by other processes are not heard of; waiting calls look by themselves");
            tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Ends when the connection does.
    async fn listen(&self, finder: &Finder, channel: &str, patience: Duration) -> Result<(), RedisError> {
        let late = |_| RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
        let subscribed = timeout(patience, async {
            let mut connection = finder.client().await?.get_async_pubsub().await?;
            connection.subscribe(channel).await?;
            Ok::<_, RedisError>(connection.split())
        });
        let (mut sink, mut messages) = subscribed.await.map_err(late)??;
        self.set_hears(true);
        loop {
            match timeout(PING_EVERY, messages.next()).await {
                Ok(Some(message)) => {
                    if let Some(id) =
                        std::str::from_utf8(message.get_payload_bytes()).ok().and_then(|id| id.parse().ok())
                    {
                        self.slot(&id).notify_waiters();
                    }
                }
                Ok(None) => return Ok(()),
                Err(_) => timeout(patience, sink.ping::<redis::Value>()).await.map_err(late)?.map(|_| ())?,
            }
        }
    }
}
