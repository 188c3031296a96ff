//! Create: a user clicks twice, or a client retries; there is one order. The unique index decides.

use onlyonce::sql::guard::{Unique, unique};
use sqlx::{Pool, Row};

use super::{Db, Failure, prepare, transaction};

const TABLES: &str = "CREATE TABLE orders (
    id BIGINT PRIMARY KEY, code VARCHAR(40) NOT NULL, amount BIGINT NOT NULL, CONSTRAINT un_code UNIQUE (code))";

/// Places an order under a code that the client chose before its first try. A retry gets the order that is there.
///
/// # Errors
/// If the database fails.
pub async fn place(pool: &Pool<Db>, id: i64, code: &str, amount: i64) -> Result<String, Failure> {
    transaction(pool, async |tx| {
        let order = unique("orders").set("id", id).set("code", code.to_owned()).set("amount", amount);
        Ok(match order.constraint("un_code", ["code"]).run(tx).await? {
            Unique::Inserted => format!("{code}: created, {amount}"),
            Unique::AlreadyThere(row) => format!("{code}: was there, {}", row.get::<i64, _>("amount")),
        })
    })
    .await
}

/// Tells what happened.
///
/// # Errors
/// If the database fails.
pub async fn story(pool: Pool<Db>) -> Result<Vec<String>, Failure> {
    prepare(&pool, TABLES).await?;
    let mut told = Vec::new();
    for (id, code, amount) in [(1, "A-1", 100), (2, "A-1", 100), (3, "A-2", 50), (4, "A-1", 100)] {
        told.push(place(&pool, id, code, amount).await?);
    }
    Ok(told)
}
