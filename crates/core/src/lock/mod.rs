//! Distributed locks: one at a time, over all processes that share a backend.
//!
//! ```
//! # use onlyonce_core::lock::{LockError, Locks, MemoryLocks};
//! # use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
//! let locks = Locks::new(MemoryLocks::new());
//! let paid = locks
//!     .key("order:42")
//!     .ttl(Duration::from_secs(30))
//!     .wait(Duration::from_secs(5))
//!     .max_hold(Duration::from_secs(600))
//!     .run(|held| async move { format!("paid under fence {}", held.fence()) })
//!     .await?;
//! assert!(paid.starts_with("paid"));
//! # Ok(()) }
//! ```
//!
//! **A lock with a time to live is for efficiency.** A process that stalls for longer than the ttl can't know that its lock
//! is gone until it runs again, and by then another one may have it. [`Held::lost`] tells as early as this process can
//! know; what makes a write *correct* is the [`fence`](Held::fence), checked by the resource that is written to: it refuses
//! a lower fence than it has seen.
//!
//! ```text
//!  acquire ─▶ in-process line, first come first served ─▶ LockBackend::acquire ─▶ Guard, renewed at a third of its ttl
//!                                                            │ taken
//!                                                            └▶ LockBackend::freed ─▶ again, until `wait` is over
//! ```
//!
//! A guard that is dropped, or an acquire that is dropped half-way, is released in the background, on the same connection.
//!
//! Metrics, with the `metrics` crate:
//!
//! | name | kind | what |
//! |---|---|---|
//! | `onlyonce_locks_held` | gauge | locks held by this process |
//! | `onlyonce_lock_acquires_total{result}` | counter | `acquired`, `busy`, `failed` |
//! | `onlyonce_lock_wait_seconds` | histogram | from asking to having |
//! | `onlyonce_lock_renewals_total{result}` | counter | `renewed`, `lost`, `unknown` |
//! | `onlyonce_lock_lost_total` | counter | locks lost before they were released |
//! | `onlyonce_lock_dropped_unreleased_total` | counter | guards dropped without `release` |

mod acquire;
mod backend;
mod error;
mod guard;
mod hold;
mod line;
mod locks;
mod memory;
mod meter;
mod name;
mod owner;
mod request;

pub use backend::{Acquired, LockBackend, NoFence, Proof, Release, Renewed};
pub use error::{LockError, RenewalFailure};
pub use guard::{Guard, Held};
pub use locks::{Locks, LocksBuilder};
pub use memory::MemoryLocks;
pub use name::LockName;
pub use owner::LockOwner;
pub use request::Request;
