//! Locks on Redis: one server, one that Sentinels watch, a Cluster, or several at once (RedLock); and a counter that expires.
//!
//! ```no_run
//! # async fn open() -> Result<(), Box<dyn std::error::Error>> {
//! use onlyonce_core::lock::Locks;
//! use onlyonce_store_redis::RedisLocks;
//! let locks = Locks::new(RedisLocks::open("redis://localhost").await?);
//! locks.key("order:42").run(|held| async move { println!("fence {}", held.fence()) }).await?;
//! # Ok(()) }
//! ```
//!
//! `SET NX PX` with a value that nobody else has, and compare-and-delete: one script and one round trip each way. A release
//! publishes only if somebody waits, who is then woken; nobody polls.
//!
//! **Redis locks are for efficiency; correctness needs the fence at the resource.** A holder that stalls past its ttl goes on
//! believing in its lock until it runs again, and a failover can lose a lock that was just given. The fence is
//! `max(last + 1, the server's time in µs)`: it falls only if the server loses it *and* its clock is set back.

mod counter;
mod names;
mod node;
mod redlock;
mod script;
mod single;
mod votes;

pub use counter::OnceCounter;
pub use redlock::{RedLock, RedLockBuilder};
pub use single::RedisLocks;
