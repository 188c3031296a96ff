//! On MySQL or MariaDB.

/// The database of the scenarios.
pub type Db = sqlx::MySql;
/// How a transaction begins.
pub const BEGIN: &str = "BEGIN";

#[path = "scenario/mod.rs"]
pub mod scenario;
