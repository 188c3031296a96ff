//! State-changing calls happen **at most once**, and every retry gets **the same answer**.
//!
//! - Over HTTP: add [`http::IdempotencyLayer`] to an axum router or any tower service.
//! - In code: [`Idempotency::call`] runs an async block at most once per key, and [`macro@idempotent`] a whole function.
//!
//! Where nobody can know whether a call had its effect (a crash between an outside effect and its record), the answer is
//! "unknown" and the record can be resolved; nothing is ever guessed.
//!
//! ```
//! use onlyonce::{Classify, Idempotency, MemoryStore, Refusal};
//!
//! #[derive(Debug, Classify)]
//! enum PayError {
//!     #[keep]
//!     Declined,         // an answer, also for retries
//!     #[release]
//!     DatabaseDown,     // nothing happened: a retry may run
//!     #[unknown]
//!     Refused(Refusal), // the call has no answer of its own
//! }
//!
//! impl From<Refusal> for PayError {
//!     fn from(refusal: Refusal) -> Self { Self::Refused(refusal) }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), PayError> {
//! let once = Idempotency::new(MemoryStore::new());
//! let order = ("order-42", 100);
//! let receipt: u32 = once
//!     .call("charge", order.0)
//!     .scope("tenant-7")
//!     .input(&order)
//!     .run(async move { Ok::<_, PayError>(order.1 * 2) })
//!     .await?;
//! assert_eq!(receipt, 200);
//! # Ok(()) }
//! ```
//!
//! Features: `axum` (default) and `http` for the layer; `macros` (default) for [`macro@idempotent`] and
//! [`derive(Classify)`](derive@Classify); `embedded` for a durable store on one machine; `redis` (and `redis-tls`) for a store
//! that many processes share; `id` (and `id-redis`, `id-sql`) for ids that do not collide; `consumer-lapin`,
//! `consumer-nats` and `consumer-kafka` for message consumers; `mysql`, `postgres` and `sqlite` for your own database: the
//! same transaction, leases and the guards, in `sql`; `locks` for distributed locks in `lock`; `client` (and `client-tls`,
//! `client-tower`) for the calling side.

#[cfg(feature = "client")]
pub use onlyonce_client as client;
#[cfg(feature = "consumer")]
pub use onlyonce_consumer as consumer;
#[cfg(feature = "http")]
pub use onlyonce_http as http;
#[cfg(feature = "id")]
pub use onlyonce_id as id;
#[cfg(feature = "sql")]
pub use onlyonce_sql as sql;
#[cfg(feature = "embedded")]
pub use onlyonce_store_embedded as embedded;
#[cfg(feature = "redis")]
pub use onlyonce_store_redis as redis;

pub use onlyonce_core::*;
#[cfg(feature = "macros")]
pub use onlyonce_macros::{Classify, StateMachine, idempotent};
