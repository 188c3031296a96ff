//! The loop: take a message when a handler is free, handle it, tell the broker.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use onlyonce_core::Drained;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::adapter::{Delivery, Note, Source};
use crate::consumer::Warnings;
use crate::decision::{Action, Broker, Outcome, Retries, decide};
use crate::handler::Batch;
use crate::processor::Processor;
use crate::start::Warning;
use crate::stats::{Counted, Counters, Stats};

/// Everything that a started consumer works with.
pub(crate) struct Service {
    pub(crate) processor: Processor,
    pub(crate) broker: Broker,
    pub(crate) retries: Retries,
    pub(crate) concurrency: u16,
    pub(crate) batch: Batch,
}

/// A consumer that was started. Dropped, it takes no more messages and finishes those under way in the background.
#[must_use = "a consumer that is dropped stops"]
pub struct Consuming {
    stop: watch::Sender<Option<Duration>>,
    task: JoinHandle<Drained>,
    counters: Arc<Counters>,
    warnings: Warnings,
}

impl Consuming {
    /// What was noticed at the start and may break the promise later.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// What became of the messages so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.counters.read()
    }

    /// Takes no more messages, gives back those that were not begun, and waits for the others, but not longer than `limit`.
    /// What is left then goes on for as long as the process lives; its messages are not acked, and are delivered again.
    pub async fn shutdown(self, limit: Duration) -> Drained {
        // Fails only if the task has ended.
        let _ = self.stop.send(Some(limit));
        self.task.await.unwrap_or(Drained::Left(0))
    }
}

impl fmt::Debug for Consuming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consuming").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// How long a consumer that was dropped, and can't be asked any more, waits for its handlers.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest that a broker may take to let a consumer go.
const PARTING: Duration = Duration::from_secs(10);

impl Service {
    pub(crate) fn start(self, source: Box<dyn Source>, warnings: Warnings) -> Consuming {
        let (stop, stopped) = watch::channel(None);
        let counters = Arc::new(Counters::default());
        let work = Arc::new(Work { service: self, counters: Arc::clone(&counters) });
        let consuming = AssertUnwindSafe(work.consume(source, stopped)).catch_unwind();
        let task = tokio::spawn(async move {
            consuming.await.unwrap_or_else(|_| {
                tracing::error!(
                    "the consumer ended by a panic; its messages are delivered again, to another one"
                );
                Drained::Left(0)
            })
        });
        Consuming { stop, task, counters, warnings }
    }
}

struct Work {
    service: Service,
    counters: Arc<Counters>,
}

impl Work {
    async fn consume(
        self: Arc<Self>,
        mut source: Box<dyn Source>,
        mut stopped: watch::Receiver<Option<Duration>>,
    ) -> Drained {
        let free = Arc::new(Semaphore::new(self.service.concurrency.into()));
        let batch = self.service.batch;
        let mut tasks = JoinSet::new();
        loop {
            let taken = async {
                let slot = Arc::clone(&free).acquire_owned().await;
                (slot, self.take(&mut *source, batch).await)
            };
            let (slot, deliveries) = tokio::select! {
                biased;
                // An error means that the handle was dropped.
                _ = stopped.changed() => break,
                taken = taken => taken,
            };
            let work = Arc::clone(&self);
            tasks.spawn(async move {
                work.handle(deliveries).await;
                drop(slot);
            });
            while tasks.try_join_next().is_some() {}
        }
        let limit = stopped.borrow().unwrap_or(PATIENCE);
        let clock = Arc::clone(self.service.processor.once.clock());
        // A broker that no longer answers can't hold up the end; what it did not hear of it delivers again.
        tokio::select! {
            () = source.stop() => {}
            () = clock.sleep(PARTING) => tracing::warn!("the broker did not confirm that no more messages are wanted"),
        }
        let drained = tokio::select! {
            () = async { while tasks.join_next().await.is_some() {} } => Drained::Everything,
            () = clock.sleep(limit) => Drained::Left(0),
        };
        let left = tasks.len();
        tasks.detach_all();
        tokio::select! {
            () = source.close() => {}
            () = clock.sleep(PARTING) => tracing::warn!("the broker did not confirm that the connection is closed"),
        }
        if left == 0 { drained } else { Drained::Left(left) }
    }

    /// The next message, or a batch: what comes within the time that it lingers.
    async fn take(&self, source: &mut dyn Source, batch: Batch) -> Vec<Box<dyn Delivery>> {
        let mut taken = Taken(vec![source.next().await]);
        if batch.max > 1 {
            let clock = self.service.processor.once.clock();
            let mut over = clock.sleep(batch.linger);
            while taken.0.len() < batch.max.into() {
                tokio::select! {
                    next = source.next() => taken.0.push(next),
                    () = &mut over => break,
                }
            }
        }
        std::mem::take(&mut taken.0)
    }

    async fn handle(&self, deliveries: Vec<Box<dyn Delivery>>) {
        let messages = deliveries.iter().map(|delivery| delivery.message().clone()).collect();
        let processed = {
            let processing = AssertUnwindSafe(self.service.processor.process(messages)).catch_unwind();
            tokio::pin!(processing);
            let reports = join_all(deliveries.iter().map(|delivery| self.report(&**delivery)));
            tokio::select! {
                processed = &mut processing => processed,
                _ = reports => processing.await,
            }
        };
        let processed = processed.unwrap_or_else(|_| {
            // Handlers and extractors are seen to elsewhere: it was a hook that recovers, or a fault of ours. What was begun is on
            // record as such; without a word to the broker the message would stay in this consumer's hands for ever.
            tracing::error!("handling messages panicked; they come back later");
            let notes = deliveries.iter().map(|delivery| self.service.processor.note(delivery.message()).0);
            notes.map(|note| (Outcome::InFlight { retry_after: Duration::from_secs(1) }, note)).collect()
        });
        let acts = deliveries.into_iter().zip(processed);
        join_all(acts.map(|(delivery, (outcome, note))| self.act(delivery, outcome, note))).await;
    }

    /// Says now and then that a message is still being handled.
    async fn report(&self, delivery: &dyn Delivery) {
        let Some(period) = delivery.progress_every() else { return };
        let clock = self.service.processor.once.clock();
        loop {
            clock.sleep(period).await;
            delivery.progress().await;
        }
    }

    async fn act(&self, delivery: Box<dyn Delivery>, outcome: Outcome, note: Note) {
        let Service { broker, retries, .. } = &self.service;
        let history = delivery.message().history();
        let action = decide(*broker, outcome.clone(), history, retries);
        self.tell(&action, &note);
        let counted = match delivery.act(&action, &note).await {
            Ok(()) => Counted::of(&outcome, &action),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    ?action,
                    "the broker did not confirm; the message will be delivered again"
                );
                Counted::Unconfirmed
            }
        };
        self.counters.count(&note.group, &note.handler, counted);
    }

    /// What a person should hear of.
    fn tell(&self, action: &Action, note: &Note) {
        let record = note.record.map(|record| record.to_string()).unwrap_or_default();
        let Note { group, handler, .. } = note;
        match action {
            Action::Park => tracing::error!(
                group,
                handler,
                record,
                "a message is parked: nobody knows whether it had its effect. Resolve its record; its copy is in the dead letter"
            ),
            Action::DeadLetter(reason) => {
                tracing::error!(group, handler, record, %reason, "a message goes to the dead letter");
            }
            Action::Ack | Action::Delay(_) | Action::Retry(_) | Action::RetryTopic(_) => {}
        }
    }
}

/// Deliveries that are given back if nobody gets to handle them: the consumer was stopped while a batch was gathered.
struct Taken(Vec<Box<dyn Delivery>>);

impl Drop for Taken {
    fn drop(&mut self) {
        for delivery in self.0.drain(..) {
            // Not awaited: the broker gets it while the other handlers finish.
            tokio::spawn(delivery.give_back());
        }
    }
}
