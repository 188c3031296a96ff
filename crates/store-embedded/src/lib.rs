//! A durable store for [onlyonce](https://docs.rs/onlyonce) on one machine, with nothing to install: records live in a
//! directory, and survive the death of the process at any point.
//!
//! ```no_run
//! use onlyonce_core::Idempotency;
//! use onlyonce_store_embedded::EmbeddedStore;
//! let once = Idempotency::new(EmbeddedStore::open("onlyonce-data")?);
//! # Ok::<(), onlyonce_store_embedded::OpenError>(())
//! ```
//!
//! ```text
//!  callers ──▶ bounded queue ──▶ one writer: decide all in order ─▶ one batch ─▶ one sync ─▶ note ─▶ answer all
//!  get, list ─▶ the engine, on threads that may block            renew ─▶ memory only
//! ```
//!
//! What it promises:
//! - A begin is on disk before the handler runs, a settlement before the answer goes out. Concurrent callers share a sync.
//! - Leases are on the monotonic clock and die with the process: what ran in a former process has lapsed when the
//!   directory is opened again. Expiry goes by the time that really passes, also while no process runs: see
//!   [`Timeline`](onlyonce_core::Timeline). A clock that is set makes nothing expire.
//! - A fence never falls, not even if its record is gone, the process restarted, and the clock was set back.
//! - A write or sync that fails stops the store: those who waited for it are told that they can't know
//!   ([`Ambiguous`](onlyonce_core::ErrorKind::Ambiguous)), and nothing is written after it. If the disk was full, the store is closed
//!   and opened again, through all checks, as soon as there is room; leases live on, and what is there is replayed meanwhile. After
//!   any other failure every later call fails until the process is started again.
//! - A value that was damaged on disk fails its own key
//!   ([`Corrupt`](onlyonce_core::ErrorKind::Corrupt)) and no other. If acknowledged batches are missing, the store is not
//!   opened: see [`OpenError`].
//! - One process at a time has the directory.

mod builder;
mod chores;
mod crash;
mod directory;
mod engine;
mod format;
mod index;
mod inspect;
mod journal;
mod keys;
mod leases;
mod limits;
mod manifest;
mod noted;
mod open;
mod open_error;
mod persisted;
mod presence;
mod room;
mod shared;
mod store;
mod stored;
mod tables;
mod time;
mod writer;

pub use builder::Builder;
pub use crash::CrashPoint;
pub use open_error::OpenError;
pub use store::EmbeddedStore;
