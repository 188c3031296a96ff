//! The engine of [onlyonce](https://docs.rs/onlyonce): state-changing calls happen at most once, and every retry gets the
//! same answer. No HTTP, no SQL, no sockets: those are in crates of their own.
//!
//! ```text
//!  call ─▶ Key + Fingerprint ─▶ Idempotency::start ──── one atomic Store::begin
//!                                 │
//!            Run(attempt) ────────┤──────────────── Taken(snapshot)
//!                 │                                      │
//!        run the handler,                     policy::decide(snapshot, fingerprint)
//!        lease renewed at 1/3                  = Replay | InProgress | Mismatch | Unknown
//!                 │                                      │
//!      classify: keep | release | unknown     the stored answer, or a refusal that says why
//!                 │
//!        Store::settle (compare-and-set on owner and fence)
//! ```
//!
//! Stores do atomicity, [`policy`] does judgement, adapters do translation. Users start at [`Idempotency`]; authors of
//! stores at [`Store`] and the laws in `onlyonce-testkit`.

#[doc(hidden)]
pub mod __private;
mod background;
mod builder;
mod call;
mod canonical;
mod classify;
mod clock;
pub mod codec;
mod drain;
mod engine;
mod error;
mod fingerprint;
mod flight;
mod hex;
pub mod json;
mod keeper;
mod key;
mod lease;
mod lease_runner;
mod loan;
#[cfg(feature = "locks")]
pub mod lock;
pub mod machine;
mod memory;
pub mod policy;
mod record;
mod refusal;
mod renewal;
mod resolve;
mod runner;
mod running;
mod seldom;
mod sequence;
mod settings;
mod state_machine;
mod store;
mod tiered;
mod timeline;
pub mod token;
mod tracked;
mod unstoppable;
mod value;

pub use builder::Builder;
pub use bytes::Bytes;
pub use call::Call;
pub use classify::{Class, Classify};
pub use clock::{Clock, ManualClock, Moment, Sleep, SystemClock, Uptime};
pub use engine::{Drained, Idempotency};
pub use error::{ErrorKind, InputError, StoreError};
pub use fingerprint::{Fingerprint, FingerprintBuilder};
pub use key::{Hash16, Key, MAX_KEY_BYTES, Operation, RecordId, Scope};
pub use lease::Permit;
pub use loan::{Loan, Return};
pub use memory::MemoryStore;
pub use policy::{Mode, OnLapse};
pub use record::{
    Answer, AttemptId, Begin, Claim, Fence, Label, Over, Owner, Revision, Settled, Settlement, Snapshot,
    State, StateKind, Takeover, Verdict,
};
pub use refusal::Refusal;
pub use resolve::Resolution;
pub use runner::{Attempt, Finish, Runner, Start};
pub use running::{Asking, Cleared, Finished, Prior, Recovery, Replay, Running, Started};
#[doc(hidden)]
pub use seldom::Seldom;
pub use sequence::{Admitted, Order, SequenceKey};
pub use settings::{Intent, Settings};
pub use state_machine::{StateMachine, Stored};
pub use store::{Cursor, Filter, Inspect, Listed, Page, Store, Unresolved};
pub use tiered::{LocalCache, NearCache, Tiered};
pub use timeline::{TimeNote, Timeline};
pub use unstoppable::Unstoppable;
