//! Ids that do not collide.
//!
//! | what | when | needs |
//! |---|---|---|
//! | [`key`], [`uuid_v7`] | idempotency keys, ids in general | nothing |
//! | [`uuid_v4`] | ids that must not tell when they were made | nothing |
//! | [`Prefix`] | ids that people meet: `order_01h4…` | nothing |
//! | [`Snowflake`] | 63-bit numbers as primary keys, sorted by time | a worker number, best leased |
//!
//! ```
//! let key = onlyonce_id::key(); // one for each logical call, kept over its retries
//! assert_eq!(key.len(), 36);
//! ```
//!
//! Snowflake ids are unique because of their worker number, so that is where care goes: see [`Grants`]. A hash of the MAC or IP
//! address is not offered as a worker number, because such hashes collide: with 1,024 numbers and 40 machines it is more likely
//! than not that two of them agree.
//!
//! Features: `redis` for `RedisGrants`. Grants from a MySQL, PostgreSQL or SQLite are in `onlyonce-sql`, feature `id`.

mod batch;
mod crockford;
mod error;
mod grants;
mod layout;
mod prefixed;
mod snowflake;
mod snowflake_id;
mod ticks;

pub use batch::Batch;
pub use error::IdError;
#[cfg(feature = "redis")]
pub use grants::RedisGrants;
pub use grants::{FixedWorker, Grant, GrantError, Grants, Holder, MemoryGrants, Request};
pub use layout::{EPOCH_2024, EPOCH_TWITTER, Layout, Parts};
pub use prefixed::{Prefix, PrefixedId};
pub use snowflake::{Builder, Snowflake};
pub use snowflake_id::SnowflakeId;
pub use uuid::Uuid;

/// A new key for a logical call: a UUID v7 as text. Make it once for a call, and keep it over its retries. Needs no network.
#[must_use]
pub fn key() -> String {
    uuid_v7().to_string()
}

/// A random UUID.
#[must_use]
pub fn uuid_v4() -> Uuid {
    Uuid::new_v4()
}

/// A UUID that sorts by the time it was made; those of one process rise strictly.
#[must_use]
pub fn uuid_v7() -> Uuid {
    Uuid::now_v7()
}
