//! A transactional outbox: events are written in the business transaction, and published by a relay once it is committed.
//!
//! ```text
//!  transaction: business rows + outbox.put(&mut tx, event) ─▶ COMMIT
//!                                                              │
//!  relay (any number of them): take a batch (SKIP LOCKED) ─▶ publish, confirmed ─▶ delete
//! ```
//!
//! An event is published **at least once, always under the same message id**: a relay that dies between publishing and
//! deleting leaves one that is published again. A consumer of `onlyonce-consumer` recognises it, so that the chain request →
//! transaction → event → consumer has one effect at its end. What was rolled back is never published.
//!
//! Events that have a [key](Event::key) are published in the order in which they were written, key by key. An event that fails holds
//! up those of its key, and no others.

mod check;
mod event;
mod relay;
mod table;
mod take;

pub use event::{Event, KEY_HEADER, OutboxError};
pub use relay::{Relay, Relaying};
pub use table::Outbox;
