//! The relay: takes events, publishes them, and forgets them once the broker has them.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::event::{Event, OutboxError};
use super::table::Outbox;
use crate::dialect::Database;

type Published = Result<(), Box<dyn Error + Send + Sync>>;
type Publish = Arc<dyn Fn(Event) -> Pin<Box<dyn Future<Output = Published> + Send>> + Send + Sync>;

/// Publishes what is in an [`Outbox`], in the order in which it was written as far as nothing fails. Any number of relays may
/// run, in any number of processes.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn run(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use onlyonce_sql::outbox::{Event, Outbox, Relay};
/// let relay = Relay::new(Outbox::new(pool), |event: Event| async move {
///     // Publish with message id `event.message_id()`, and wait until the broker has it.
///     println!("{} {:?}", event.topic(), event.payload());
///     Ok(())
/// });
/// let relaying = relay.start();
/// // … until SIGTERM:
/// relaying.shutdown().await;
/// # Ok(()) }
/// ```
#[must_use = "a relay does nothing until it is started"]
pub struct Relay<DB: Database> {
    outbox: Outbox<DB>,
    publish: Publish,
    batch: u32,
    every: Duration,
    hold: Duration,
}

/// The pauses after an event that was not published.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

impl<DB: Database> Relay<DB> {
    /// A relay that publishes with this. It must say `Ok` only once the broker has the event for good.
    pub fn new<F>(outbox: Outbox<DB>, publish: impl Fn(Event) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Published> + Send + 'static,
    {
        Self {
            outbox,
            publish: Arc::new(move |event| Box::pin(publish(event))),
            batch: 100,
            every: Duration::from_millis(200),
            hold: Duration::from_secs(30),
        }
    }

    /// How many events are taken at a time (100).
    pub fn batch(mut self, events: u32) -> Self {
        self.batch = events.clamp(1, 1_000);
        self
    }

    /// How often is looked for events while there are none (200 ms).
    pub fn every(mut self, pause: Duration) -> Self {
        self.every = pause.max(Duration::from_millis(1));
        self
    }

    /// How long a batch may take to be published (30 s). Events of a relay that died are published by another after this time.
    pub fn hold(mut self, span: Duration) -> Self {
        self.hold = span.max(Duration::from_millis(100));
        self
    }

    /// Publishes what is there now, at most one batch, and says how many events it was.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn once(&self) -> Result<usize, OutboxError> {
        let taken = self.outbox.take(self.batch, self.hold).await?;
        // They have to be through before others may take them.
        let patience = self.hold * 3 / 4;
        let tries = taken.iter().map(|taken| timeout(patience, (self.publish)(taken.event.clone())));
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for (taken, tried) in taken.iter().zip(join_all(tries).await) {
            let why: Box<dyn Error + Send + Sync> = match tried {
                Ok(Ok(())) => {
                    done.push(taken.seq);
                    continue;
                }
                Ok(Err(why)) => why,
                Err(_) => format!("it was not published within {patience:?}").into(),
            };
            tracing::warn!(
                id = taken.event.message_id(),
                error = &*why as &dyn Error,
                "an event was not published"
            );
            failed.push(taken);
        }
        self.outbox.published(&done).await?;
        for taken in failed {
            let doubled = 1_u32.checked_shl(u32::try_from(taken.attempts).unwrap_or(31)).unwrap_or(u32::MAX);
            let pause = FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE);
            self.outbox.later(taken.seq, pause).await?;
        }
        Ok(done.len())
    }

    /// Publishes from now on, in the background.
    pub fn start(self) -> Relaying {
        let (stop, mut stopped) = watch::channel(());
        let task = tokio::spawn(async move {
            loop {
                let rest = match self.once().await {
                    Ok(0) => self.every,
                    Ok(_) => Duration::ZERO,
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn Error, "the relay failed, will retry");
                        FIRST_PAUSE
                    }
                };
                tokio::select! {
                    biased;
                    // An error means that the handle was dropped.
                    _ = stopped.changed() => return,
                    () = sleep(rest) => {}
                }
            }
        });
        Relaying { stop, task }
    }
}

impl<DB: Database> fmt::Debug for Relay<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("outbox", &self.outbox)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

/// A relay that was started. Dropped, it stops after the batch that it has in hand.
#[derive(Debug)]
#[must_use = "a relay that is dropped stops"]
pub struct Relaying {
    stop: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Relaying {
    /// Stops after the batch that it has in hand.
    pub async fn shutdown(self) {
        // Fails only if the task has ended.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}
