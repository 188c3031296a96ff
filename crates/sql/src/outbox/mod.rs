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

mod event;
mod relay;
mod table;

pub use event::{Event, OutboxError};
pub use relay::{Relay, Relaying};
pub use table::Outbox;
