//! [onlyonce](https://docs.rs/onlyonce) on the Redis you already have: one server, one that Sentinels watch, or a Cluster; Redis 6.2 or newer (tested on
//! 7), or Valkey.
//!
//! ```no_run
//! # async fn open() -> Result<(), onlyonce_store_redis::OpenError> {
//! use onlyonce_core::Idempotency;
//! use onlyonce_store_redis::RedisStore;
//! let once = Idempotency::new(RedisStore::open("redis://localhost").await?);
//! # Ok(()) }
//! ```
//!
//! ```text
//!  begin, renew, settle, get, forget ─▶ one script each, on one key ─▶ one round trip, one atomic step
//!  changed ─▶ a note in the record that somebody waits ─▶ the script that changes it publishes ─▶ woken
//!  lapsed ─▶ an index of what is not settled, kept by the same scripts; list, count ─▶ SCAN: a pass over all records
//! ```
//!
//! What it promises:
//! - The server's clock alone judges leases and expiry; Redis removes expired records by itself.
//! - A failure says what it left behind: a connection that was refused or a server that said no is
//!   [`Unavailable`](onlyonce_core::ErrorKind::Unavailable); a reply that did not come is
//!   [`Ambiguous`](onlyonce_core::ErrorKind::Ambiguous), and the engine repeats the call, which its owner nonce makes safe.
//! - A fence rises with every attempt, also after its record was deleted: it is at least the server's time in microseconds.
//!
//! What Redis can't promise:
//! - **Acknowledged writes survive a restart only with `appendonly yes`, and a failover only if the replica had them.** Redis
//!   replicates after it has answered. If a record is lost, its call can run again. Send the fence along to the resource:
//!   one that refuses a lower fence than it has seen closes the gap.
//! - A fence can fall if a failover loses the record *and* the new primary's clock is behind.
//! - Evicted records are lost records: [`Builder::strict`] refuses such a server, otherwise the log has a warning.
//! - A server that is out of memory (`maxmemory` with `noeviction`) refuses new calls, and still lets those that run settle.
//!
//! Costs to know: [`list`](onlyonce_core::Inspect::list) and [`count`](onlyonce_core::Inspect::count) pass over all keys of
//! the database, a page as much as all pages; on a Cluster, a record whose slot moves during the pass may be left out.
//! [`lapsed`](onlyonce_core::Inspect::lapsed) reads the index, which is as long as what is not settled. On a Cluster, a message
//! to who waits goes to every node, which is why it is only sent for records that somebody waits for; and while a slot moves,
//! new calls of its records wait for the end of the move, up to 2.5 s.
//!
//! Features: `tls` for `rediss://`; `locks` for locks, RedLock and a counter of first times.

mod builder;
mod cache;
mod checks;
mod fault;
mod index;
mod inspect;
mod keys;
mod link;
#[cfg(feature = "locks")]
pub mod lock;
mod open_error;
mod record_script;
mod replicas;
mod reply;
mod scan;
mod script;
mod server_time;
mod store;
mod stored;
mod target;
mod waiting;
mod wakes;

pub use builder::Builder;
pub use cache::RedisCache;
pub use checks::Concern;
#[cfg(feature = "locks")]
pub use lock::{OnceCounter, RedLock, RedLockBuilder, RedisLocks};
pub use open_error::OpenError;
pub use store::RedisStore;
