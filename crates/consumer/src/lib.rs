//! Message consumers with exactly one effect per message, on RabbitMQ, NATS JetStream and Kafka.
//!
//! Queues deliver twice: after a lost ack, a rebalance, a crash. A [`Consumer`] puts its handler behind the engine of
//! onlyonce, so that a message that comes back is recognised by (consumer group, handler, message id), and acks only what is
//! on record.
//!
//! ```text
//!  delivery ─▶ message id ─▶ claim ─▶ handler ─▶ settle ─▶ decide(broker, outcome) ─▶ ack | delay | retry | park | dead letter
//! ```
//!
//! | outcome | RabbitMQ | NATS JetStream | Kafka |
//! |---|---|---|---|
//! | done or duplicate | ack | double ack | store offset |
//! | in flight elsewhere | delay queue | nak with delay | the partition is held |
//! | business error | on record, ack | on record, ack | on record, store offset |
//! | system error | retry by a delay queue, with backoff | nak with backoff | in place, then the retry topic |
//! | outcome unknown | parked: record, copy to the dead letter, ack, count | same | same |
//! | poison | dead letter with the reason, ack | dead letter with the reason, term | dead letter with the reason, store offset |
//! | store down | delay, however often | same | same |
//!
//! The table is the pure function [`decide`]. A broker is one [`adapter`]: `lapin`, `nats` and `kafka` are features.

pub mod adapter;
mod consumer;
mod decision;
mod handler;
mod identity;
mod message;
#[cfg(any(feature = "lapin", feature = "nats"))]
mod patience;
mod processor;
mod service;
mod start;
mod stats;

#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "lapin")]
mod rabbitmq;

pub use consumer::Consumer;
pub use decision::{Action, Broker, Outcome, Reason, Retries, decide};
pub use handler::{Batch, Job};
pub use identity::{Extract, KEY_HEADER, MESSAGE_ID_HEADER, NoId};
#[cfg(feature = "kafka")]
pub use kafka::{Kafka, KafkaPublisher};
pub use message::{History, Message};
#[cfg(feature = "nats")]
pub use nats::{Nats, NatsPublisher};
pub use processor::Compare;
#[cfg(feature = "lapin")]
pub use rabbitmq::{RabbitMq, RabbitPublisher};
pub use service::Consuming;
pub use start::{Horizon, StartError, Warning};
pub use stats::Stats;
