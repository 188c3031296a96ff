//! The classic techniques against duplicates, as one statement each inside your own transaction.
//!
//! | guard | use it to | outcomes |
//! |---|---|---|
//! | [`unique`] | insert a row that may exist only once | [`Unique`]: inserted, or already there |
//! | [`dedup`] | do something once that leaves no unique row of its own | [`Dedup`]: first, or a duplicate |
//! | [`locked`] | look at a row and change it while nobody else can | [`Locked`]: held, busy, or missing |
//! | [`versioned`] | change or delete the row that you saw, and no later one | [`Versioned`]: applied, duplicate, conflict, unmet, or not found |
//! | [`transition`] | move a row along a state machine | [`Transition`]: applied, already there, duplicate, illegal, or not found |
//! | [`sequence`] | accept each number of a caller once, or only rising ones | [`Sequence`]: accepted, duplicate, or behind |
//!
//! Each takes `&mut` of a transaction, a connection or a pooled connection of MySQL, MariaDB, PostgreSQL or SQLite
//! ([`Session`]), and nothing is left of it when that transaction is rolled back. What was to be expected is an outcome;
//! a [`GuardError`] is a failure, and [`GuardError::kind`] says what to do next. On PostgreSQL no outcome leaves the
//! transaction broken.
//!
//! Names of tables and columns are quoted, values are always bound. Names are written as the database keeps them: on
//! PostgreSQL `orders`, not `Orders`, unless the table was created with quotes. A table may be given as `schema.table`.
//!
//! [`dedup`], [`sequence`] and operation ids need two small tables: [`migrate`] creates them, or run the
//! [shipped SQL](schema()) with your own migrations.
//!
//! Unless it is said otherwise a guard whose statement is prepared makes one round trip, as long as nobody was there before.
//!
//! Where the tables are sharded by key, a unique index holds within its shard: route a call by the same key that the guard
//! is given, and both meet in one database.

mod change;
mod dedup;
mod dialect;
mod error;
mod ident;
mod locked;
#[cfg(feature = "mysql")]
mod mysql;
mod operation;
#[cfg(feature = "postgres")]
mod postgres;
mod schema;
mod sequence;
mod session;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statement;
mod transition;
mod unique;
mod versioned;

pub use change::Change;
pub use dedup::{Dedup, DedupEntry, dedup};
pub use dialect::Dialect;
pub use error::{GuardError, GuardErrorKind};
pub use locked::{Locked, RowLock, locked};
pub use onlyonce_core::SequenceKey;
pub use operation::OperationId;
pub use schema::{migrate, schema, sweep};
pub use sequence::{Sequence, SequenceEntry, sequence};
pub use session::Session;
pub use statement::Bindable;
pub use transition::{StateChange, Transition, transition};
pub use unique::{Unique, UniqueInsert, unique};
pub use versioned::{Versioned, VersionedRow, versioned};
