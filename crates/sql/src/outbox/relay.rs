//! The relay: takes events, publishes them, and forgets them once the broker has them.

use std::error::Error;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::event::{Event, OutboxError};
use super::table::Outbox;
use super::take::{Line, Taken};
use crate::dialect::Database;

type Published = Result<(), Box<dyn Error + Send + Sync>>;
type Publish = Arc<dyn Fn(Event) -> Pin<Box<dyn Future<Output = Published> + Send>> + Send + Sync>;

/// Publishes what is in an [`Outbox`]: events of one key one after the other, in the order in which they were written, all others
/// side by side. Any number of relays may run, in any number of processes. An event that is not published is tried again with
/// growing pauses, for as long as it is there, and holds up nobody but those of its key; so does one whose publishing panics.
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
    patience: Duration,
}

/// The pauses after an event that was not published.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// What a relay that died had in hand is published by another at last.
const LONGEST_HOLD: Duration = Duration::from_secs(3600);

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
            patience: Duration::from_secs(10),
        }
    }

    /// How many events are in hand at a time (100).
    pub fn batch(mut self, events: u32) -> Self {
        self.batch = events.clamp(1, 1_000);
        self
    }

    /// How often is looked for events while there are none (200 ms); at least once an hour.
    pub fn every(mut self, pause: Duration) -> Self {
        self.every = pause.clamp(Duration::from_millis(1), LONGEST_HOLD);
        self
    }

    /// How long an event may be in hand (30 s; 100 ms to an hour): three quarters of it to be published, with those of its key
    /// that were taken before it. Events of a relay that died are published by another after this time.
    pub fn hold(mut self, span: Duration) -> Self {
        self.hold = span.clamp(Duration::from_millis(100), LONGEST_HOLD);
        self
    }

    /// How long the database may take to hand events over, and to forget them (10 s; 100 ms to an hour). What it says nothing about in
    /// that time is tried again, on another connection. SQLite has its own time (`busy_timeout`).
    pub fn response_timeout(mut self, patience: Duration) -> Self {
        self.patience = patience.clamp(Duration::from_millis(100), LONGEST_HOLD);
        self
    }

    /// Publishes what is there now, at most one batch, and says how many events it was.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn once(&self) -> Result<usize, OutboxError> {
        let lines = self.take(self.batch).await?;
        let lines: FuturesUnordered<_> = lines.into_iter().map(|line| self.publish_line(line)).collect();
        self.settle(lines.collect().await).await
    }

    async fn take(&self, limit: u32) -> Result<Vec<Line>, OutboxError> {
        self.outbox.take(limit, self.hold, self.patience).await
    }

    /// Publishes from now on, in the background.
    pub fn start(self) -> Relaying {
        let (stop, stopped) = watch::channel(());
        let task = tokio::spawn(async move {
            while AssertUnwindSafe(self.run(stopped.clone())).catch_unwind().await.is_err() {
                tracing::error!(
                    "the relay panicked, and begins again; what it had in hand is published after its hold"
                );
                sleep(FIRST_PAUSE).await;
            }
        });
        Relaying { stop, task }
    }

    /// Looks for more while there is room, so that one that takes long holds up nobody.
    async fn run(&self, mut stopped: watch::Receiver<()>) {
        let mut lines = FuturesUnordered::new();
        let mut in_hand = 0;
        let mut look = Box::pin(sleep(Duration::ZERO));
        loop {
            tokio::select! {
                biased;
                // An error means that the handle was dropped.
                _ = stopped.changed() => break,
                Some(ended) = lines.next() => {
                    let mut ended = vec![ended];
                    // Whatever is through by now goes in one statement.
                    while let Some(Some(more)) = lines.next().now_or_never() {
                        ended.push(more);
                    }
                    in_hand -= ended.iter().map(|line: &Through| line.size).sum::<u32>();
                    self.settle_or_say(ended).await;
                }
                () = &mut look, if in_hand < self.batch => {
                    let rest = match self.take(self.batch - in_hand).await {
                        Ok(taken) if taken.is_empty() => self.every,
                        Ok(taken) => {
                            in_hand += taken.iter().map(size).sum::<u32>();
                            lines.extend(taken.into_iter().map(|line| self.publish_line(line)));
                            Duration::ZERO
                        }
                        Err(error) => {
                            tracing::warn!(error = &error as &dyn Error, "the relay failed, will retry");
                            FIRST_PAUSE
                        }
                    };
                    look = Box::pin(sleep(rest));
                }
            }
        }
        self.settle_or_say(lines.collect().await).await;
    }

    /// Publishes events one after the other, up to the first that is not published.
    async fn publish_line(&self, line: Line) -> Through {
        // They have to be through before others may take them.
        let patience = self.hold.mul_f64(0.75);
        let size = size(&line);
        let mut published = Vec::with_capacity(line.len());
        let publishing = async {
            for taken in &line {
                self.publish(&taken.event).await?;
                published.push(taken.seq);
            }
            Ok(())
        };
        let why: Box<dyn Error + Send + Sync> = match timeout(patience, publishing).await {
            Ok(Ok(())) => return Through { size, published, failed: None },
            Ok(Err(why)) => why,
            Err(_) => format!("it was not published within {patience:?}").into(),
        };
        let failed = line.into_iter().nth(published.len());
        if let Some(Taken { event, attempts, .. }) = &failed {
            let (id, topic) = (event.message_id(), event.topic());
            tracing::warn!(id, topic, attempts, why = said(&*why), "an event was not published, will retry");
        }
        Through { size, published, failed }
    }

    /// A panic is the failure of this event, and the end of nothing else.
    async fn publish(&self, event: &Event) -> Published {
        let publishing = AssertUnwindSafe(async { (self.publish)(event.clone()).await });
        publishing.catch_unwind().await.unwrap_or_else(|_| Err("publishing it panicked".into()))
    }

    /// Puts off what failed, and then forgets what is published: once those ahead of it are gone, an event is the first of its key, and
    /// must not be taken before its pause is over.
    async fn settle(&self, lines: Vec<Through>) -> Result<usize, OutboxError> {
        for taken in lines.iter().filter_map(|line| line.failed.as_ref()) {
            let doubled = 1_u32.checked_shl(u32::try_from(taken.attempts).unwrap_or(31)).unwrap_or(u32::MAX);
            let pause = FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE);
            self.outbox.later(taken.seq, pause, self.patience).await?;
        }
        let published: Vec<i64> = lines.into_iter().flat_map(|line| line.published).collect();
        self.outbox.published(&published, self.patience).await?;
        Ok(published.len())
    }

    async fn settle_or_say(&self, lines: Vec<Through>) {
        if let Err(error) = self.settle(lines).await {
            let error = &error as &dyn Error;
            tracing::warn!(
                error,
                "it is not on record what was published; it is published again, under the same ids"
            );
        }
    }
}

/// What became of a line.
struct Through {
    /// How many were in hand.
    size: u32,
    published: Vec<i64>,
    /// The one at which it ended.
    failed: Option<Taken>,
}

fn size(line: &Line) -> u32 {
    u32::try_from(line.len()).unwrap_or(u32::MAX)
}

/// An error with its causes. Formatting is code of the publisher's: it may panic too.
fn said(error: &(dyn Error + 'static)) -> String {
    let causes = || {
        let chain = std::iter::successors(Some(error), |error| (*error).source());
        chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    };
    std::panic::catch_unwind(AssertUnwindSafe(causes))
        .unwrap_or_else(|_| "an error that can't be shown".into())
}

impl<DB: Database> fmt::Debug for Relay<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("outbox", &self.outbox)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

/// A relay that was started. Dropped, it stops after what it has in hand. What it has in hand when its runtime ends is published
/// by another relay, or at the next start, after [`Relay::hold`].
#[derive(Debug)]
#[must_use = "a relay that is dropped stops"]
pub struct Relaying {
    stop: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Relaying {
    /// Takes no more, and ends once it is through with what it has in hand.
    pub async fn shutdown(self) {
        // Fails only if the task has ended.
        let _ = self.stop.send(());
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the relay had ended before");
        }
    }
}
