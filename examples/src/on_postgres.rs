//! On PostgreSQL.

/// The database of the scenarios.
pub type Db = sqlx::Postgres;
/// How a transaction begins.
pub const BEGIN: &str = "BEGIN";

#[path = "scenario/mod.rs"]
pub mod scenario;
