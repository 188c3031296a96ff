//! On SQLite, in memory: what the programs do.

use std::future::Future;

use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{Pool, Sqlite};

/// The database of the scenarios.
pub type Db = Sqlite;
/// How a transaction begins. Who reads first and writes later would fail if another one wrote between.
pub const BEGIN: &str = "BEGIN IMMEDIATE";

#[path = "scenario/mod.rs"]
pub mod scenario;

/// Tells a scenario.
///
/// # Errors
/// If it fails.
pub async fn tell<F: Future<Output = Result<Vec<String>, scenario::Failure>>>(
    story: impl FnOnce(Pool<Db>) -> F,
) -> Result<(), scenario::Failure> {
    // In memory every connection has a database of its own, so there is one.
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
    for line in story(pool).await? {
        println!("{line}");
    }
    Ok(())
}
