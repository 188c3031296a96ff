//! A task that receives, so that the group never thinks this member dead, and lanes from which messages are taken.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::KafkaResult;
use rdkafka::message::Timestamp;
use rdkafka::producer::FutureProducer;
use rdkafka::{ClientContext, Message as _, TopicPartitionList};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Kafka;
use super::delivery::{KafkaDelivery, not_before};
use super::lanes::{Lanes, Place, Ticket};
use super::load::Load;
use crate::adapter::{Delivery, Plan, Source};

/// Before receiving is tried again; the client itself reconnects with pauses of its own.
const PAUSE: Duration = Duration::from_millis(500);

/// What is here of each partition, and who waits for it.
#[derive(Clone)]
pub(super) struct Desk {
    lanes: Arc<Mutex<Lanes<Arc<Load>>>>,
    moved: Arc<Notify>,
}

impl Desk {
    fn change<R>(&self, change: impl FnOnce(&mut Lanes<Arc<Load>>) -> R) -> R {
        let result = change(&mut self.lanes.lock());
        self.moved.notify_waiters();
        result
    }

    /// After the pause it may be taken again.
    pub(super) fn back_after(&self, ticket: Ticket, pause: Duration) {
        let desk = self.clone();
        tokio::spawn(async move {
            sleep(pause).await;
            desk.change(|lanes| lanes.back(&ticket));
        });
    }

    pub(super) fn hold(&self, ticket: &Ticket, failed: bool) {
        self.change(|lanes| lanes.hold(ticket, failed));
    }
}

/// Forgets what belongs to somebody else. Whatever the group gives us begins anew, and is not paused: the client keeps a pause of
/// ours beyond the partition's going and coming, while the lane that would have ended it is gone.
pub(super) struct Turns(Desk);

impl Turns {
    fn begin_anew(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        for element in partitions.elements() {
            let place = (element.topic().to_owned(), element.partition());
            self.0.change(|lanes| lanes.revoke(&place));
        }
        if let Err(error) = consumer.resume(partitions) {
            tracing::warn!(%error, "partitions that change hands were not resumed");
        }
    }
}

impl ClientContext for Turns {}

impl ConsumerContext for Turns {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Revoke(partitions) => self.begin_anew(consumer, partitions),
            Rebalance::Error(_) => self.0.change(Lanes::revoke_all),
            Rebalance::Assign(_) => {}
        }
    }

    fn post_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(partitions) = rebalance {
            self.begin_anew(consumer, partitions);
        }
    }
}

/// What deliveries act with.
pub(super) struct Hub {
    consumer: StreamConsumer<Turns>,
    pub(super) producer: FutureProducer,
    pub(super) desk: Desk,
    pub(super) dead: String,
    pub(super) retry: Option<String>,
    /// The longest that a message of a retry topic may ask to wait.
    longest: Duration,
}

impl Hub {
    /// It is done with: stores the offset up to which everything is.
    pub(super) fn done(&self, ticket: &Ticket) -> KafkaResult<()> {
        let (topic, partition) = &ticket.place;
        let (stored, resume) = self.desk.change(|lanes| {
            let (offset, resume) = lanes.done(ticket);
            // Before anybody takes the next message: the client keeps the offset that comes last, not the highest.
            let store = |offset| self.consumer.store_offset(topic, *partition, offset);
            (offset.map_or(Ok(()), store), resume)
        });
        if resume {
            self.resume(&ticket.place);
        }
        stored
    }

    fn resume(&self, place: &Place) {
        if let Err(error) = self.consumer.resume(&only(place)) {
            tracing::warn!(%error, "a partition with room was not resumed, will retry");
            self.desk.change(|lanes| lanes.still_paused(place));
        }
    }

    async fn receive(&self) {
        loop {
            match self.consumer.recv().await {
                Ok(message) => self.take_in(Load::of(message.detach())),
                Err(error) => {
                    tracing::warn!(%error, "receiving from Kafka failed, will retry");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn take_in(&self, load: Load) {
        let message = &load.message;
        let place = (message.topic().to_owned(), message.partition());
        let offset = message.offset();
        let early = not_before(message).and_then(|then| {
            let left = then.saturating_sub(Timestamp::now().to_millis().unwrap_or(then));
            let left = Duration::from_millis(u64::try_from(left).ok()?).min(self.longest);
            (!left.is_zero()).then_some(left)
        });
        let (ticket, pause) =
            self.desk.change(|lanes| lanes.add(&place, offset, early.is_some(), Arc::new(load)));
        if let Some(early) = early {
            self.desk.back_after(ticket, early);
        }
        if pause && let Err(error) = self.consumer.pause(&only(&place)) {
            tracing::debug!(%error, "a full partition was not paused");
        }
        // It may have been emptied and resumed before this pause took hold: then it would stay paused for good.
        if pause && !self.desk.lanes.lock().is_paused(&place) {
            self.resume(&place);
        }
    }
}

fn only((topic, partition): &Place) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    list.add_partition(topic, *partition);
    list
}

pub(super) struct KafkaSource {
    hub: Arc<Hub>,
    receiving: JoinHandle<()>,
}

impl KafkaSource {
    pub(super) fn start(kafka: &Kafka, dead: String, plan: &Plan) -> KafkaResult<Self> {
        let desk =
            Desk { lanes: Arc::new(Mutex::new(Lanes::new(plan.batch))), moved: Arc::new(Notify::new()) };
        let consumer: StreamConsumer<Turns> =
            kafka.settings(plan).create_with_context(Turns(desk.clone()))?;
        let mut topics = vec![kafka.topic.as_str()];
        topics.extend(kafka.retry.as_deref());
        consumer.subscribe(&topics)?;
        let producer = kafka.publishing().create()?;
        let (retry, longest) = (kafka.retry.clone(), plan.retries.longest);
        let hub = Arc::new(Hub { consumer, producer, desk, dead, retry, longest });
        let receiving = Self::receive(&hub, Duration::ZERO);
        Ok(Self { hub, receiving })
    }

    fn receive(hub: &Arc<Hub>, after: Duration) -> JoinHandle<()> {
        let receiver = Arc::clone(hub);
        tokio::spawn(async move {
            sleep(after).await;
            receiver.receive().await;
        })
    }
}

#[async_trait]
impl Source for KafkaSource {
    async fn next(&mut self) -> Box<dyn Delivery> {
        loop {
            let hub = Arc::clone(&self.hub);
            let moved = hub.desk.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let taken = hub.desk.lanes.lock().take();
            if let Some((ticket, load, failures, deliveries)) = taken {
                return Box::new(KafkaDelivery::new(
                    Arc::clone(&self.hub),
                    ticket,
                    load,
                    failures,
                    deliveries,
                ));
            }
            tokio::select! {
                () = moved => {}
                ended = &mut self.receiving => {
                    // It never ends by itself. Without it nothing would come any more, and nobody would know why.
                    tracing::error!(?ended, "receiving from Kafka ended, and is begun again");
                    // Begun before anything is waited for: this may be dropped, and a task that has ended is not asked twice.
                    self.receiving = Self::receive(&self.hub, PAUSE);
                }
            }
        }
    }

    async fn stop(&mut self) {
        self.hub.desk.change(Lanes::stop);
    }

    async fn close(self: Box<Self>) {
        let Self { hub, receiving } = *self;
        receiving.abort();
        let _ = receiving.await;
        // Both block: the commit, and leaving the group, which lets others have the partitions at once.
        let leaving = tokio::task::spawn_blocking(move || {
            if let Err(error) = hub.consumer.commit_consumer_state(CommitMode::Sync) {
                tracing::debug!(%error, "nothing was committed at the end");
            }
            hub.consumer.unsubscribe();
            drop(hub);
        });
        let _ = leaving.await;
    }
}
