//! A tower layer that makes HTTP writes happen at most once and gives every retry the same answer.
//!
//! It works with axum, hyper, and any service of `http::Request`. A request with an `Idempotency-Key` is read whole,
//! digested, and started through [`Idempotency`](onlyonce_core::Idempotency); the handler then runs to its end, also when the
//! client goes away. A retry gets the stored answer, with `Idempotent-Replayed: true`.
//!
//! ```
//! use axum::{Router, routing::post};
//! use onlyonce_core::{Idempotency, MemoryStore};
//! use onlyonce_http::{IdempotencyLayer, ScopeFrom};
//!
//! let once = Idempotency::new(MemoryStore::new());
//! let app: Router = Router::new()
//!     .route("/payments", post(async || "paid"))
//!     .layer(IdempotencyLayer::new(once, ScopeFrom::header("x-tenant")));
//! ```
//!
//! A handler finds the [`Permit`](onlyonce_core::Permit) of its attempt in the request's extensions, and may decide itself
//! what its answer means by putting a [`Class`](onlyonce_core::Class) into the response's extensions.
//!
//! Below nested axum routers switch on the feature `axum` (the facade does): without it the layer sees the path that is left
//! after nesting, and the same path below two routers would be the same call.
//!
//! What is promised in which case: see `docs/guarantees.md`. How refusals look: see [`problem`].

mod answer;
mod audience;
mod body;
mod call;
mod classify;
mod endpoints;
mod exchange;
mod fingerprint;
mod headers;
mod key;
mod language;
mod lax;
mod layer;
mod memory;
mod merged;
mod meter;
mod multipart;
mod options;
mod outcome;
mod pairs;
mod path;
pub mod problem;
mod relayed;
mod replay;
mod routes;
mod scope;
mod service;
mod stages;
mod token;
mod unsettled;
mod weighted;
mod whole;

pub use answer::StoredAnswer;
pub use body::{RequestBody, ResponseBody};
pub use classify::{On500, classify};
pub use endpoints::{Ids, SCRIPT};
pub use fingerprint::FingerprintOf;
pub use headers::StoredHeaders;
pub use key::{IDEMPOTENCY_KEY, KeyFrom, SEQUENCE, key_of_header};
pub use language::Language;
pub use lax::stands_in_for_target;
pub use layer::{IdempotencyLayer, LayerBuilder};
pub use memory::{Account, Eviction, EvictionMark, MemoryBudget, Reservation};
pub use meter::Timings;
pub use options::{MissingKey, NotRetained, Options, Question, Recover, StoreDown};
pub use path::{has_hidden_steps, resolved as resolved_path, spelled as spelled_path, spelled_pattern};
pub use problem::ProblemKind;
pub use relayed::Relayed;
pub use scope::{Caller, ScopeFrom};
pub use service::{IdempotencyService, ResponseFuture};
pub use token::TokenRule;
pub use whole::{BodyError, WholeBody};
