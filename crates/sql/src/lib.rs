//! [onlyonce](https://docs.rs/onlyonce) in your own database: MySQL 8 and MariaDB 10.6, PostgreSQL 14, SQLite, or newer.
//!
//! ```no_run
//! # #[cfg(feature = "postgres")]
//! # async fn open() -> Result<(), onlyonce_sql::OpenError> {
//! use onlyonce_core::Idempotency;
//! use onlyonce_sql::PostgresStore;
//! let once = Idempotency::new(PostgresStore::builder("postgres://localhost/shop").migrate().open().await?);
//! # Ok(()) }
//! ```
//!
//! | what | |
//! |---|---|
//! | [`SqlStore::same_transaction`] | the record commits with the effect, in a [`Tx`] that the handler uses: never "unknown" |
//! | [`SqlStore`] | records in a table, with leases judged by the clock of the database |
//! | [`outbox`] | events that are written in the business transaction, and published once it is committed |
//! | `SqlGrants` (feature `id`) | worker numbers of Snowflake ids, leased by the clock of the database |
//! | [`guard`] | one statement that tells done, duplicate, conflict, illegal and missing apart |

// What only another database needs is not missed where that one is switched off.
#![cfg_attr(
    not(all(feature = "mysql", feature = "postgres", feature = "sqlite")),
    allow(dead_code, unused_imports, unused_macros)
)]

mod builder;
mod clock;
mod concern;
mod crash;
mod dialect;
mod fault;
#[cfg(feature = "id")]
mod grants;
pub mod guard;
mod inspect;
mod late;
mod link;
mod migrate;
mod open_error;
pub mod outbox;
mod place;
mod pooled;
mod row;
mod statements;
mod store;
mod sweep;
mod table;
mod tx;
mod value;
mod waiting;
mod wakes;

pub use builder::Builder;
pub use concern::Concern;
pub use crash::CrashPoint;
pub use dialect::Database;
#[cfg(feature = "id")]
pub use grants::SqlGrants;
pub use open_error::OpenError;
#[cfg(feature = "mysql")]
pub use sqlx::MySql;
#[cfg(feature = "postgres")]
pub use sqlx::Postgres;
#[cfg(feature = "sqlite")]
pub use sqlx::Sqlite;
pub use store::SqlStore;
pub use sweep::Progress;
pub use tx::{InTransaction, NoTx, SameTransaction, Tx};

/// Records in a MySQL or MariaDB.
#[cfg(feature = "mysql")]
pub type MySqlStore = SqlStore<MySql>;
/// Records in a PostgreSQL.
#[cfg(feature = "postgres")]
pub type PostgresStore = SqlStore<Postgres>;
/// Worker numbers leased from a MySQL or MariaDB.
#[cfg(all(feature = "id", feature = "mysql"))]
pub type MySqlGrants = SqlGrants<MySql>;
/// Worker numbers leased from a PostgreSQL.
#[cfg(all(feature = "id", feature = "postgres"))]
pub type PostgresGrants = SqlGrants<Postgres>;
/// Worker numbers leased from a file of SQLite.
#[cfg(all(feature = "id", feature = "sqlite"))]
pub type SqliteGrants = SqlGrants<Sqlite>;
/// Records in a file of SQLite.
#[cfg(feature = "sqlite")]
pub type SqliteStore = SqlStore<Sqlite>;
