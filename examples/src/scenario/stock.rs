//! Stock: retries and repeated messages never take twice, and nothing is oversold. An optimistic lock, and the order's number as
//! the operation.

use onlyonce::sql::guard::{Change, OperationId, Versioned, versioned};
use sqlx::{Pool, Row};

use super::{Db, Failure, prepare, transaction};

const TABLES: &str = "
    CREATE TABLE stock (id BIGINT PRIMARY KEY, pieces BIGINT NOT NULL, version BIGINT NOT NULL);
    INSERT INTO stock VALUES (1, 5, 1);
";

/// Takes pieces for an order, from the stock as somebody saw it.
///
/// # Errors
/// If the database fails.
pub async fn take(pool: &Pool<Db>, order: &str, seen: i64, pieces: i64) -> Result<String, Failure> {
    let operation = OperationId::new("stock.take", order)?;
    transaction(pool, async |tx| {
        let change = Change::new().add("pieces", -pieces).at_least("pieces", pieces);
        let stock = versioned("stock", "version").key("id", 1_i64).seen(seen).operation(operation.clone());
        Ok(match stock.update(tx, change).await? {
            Versioned::Applied { version } => format!("{order}: {pieces} taken, version {version}"),
            Versioned::Duplicate(_) => format!("{order}: was taken before"),
            Versioned::Unmet(row) => format!("{order}: only {} there", row.get::<i64, _>("pieces")),
            Versioned::Conflict(row) => {
                format!("{order}: changed to version {}", row.get::<i64, _>("version"))
            }
            Versioned::NotFound => format!("{order}: no such article"),
        })
    })
    .await
}

/// All saw version 1. `B` finds another one, and takes from the stock as it is now: it may, because it has a name.
///
/// Tells what happened.
///
/// # Errors
/// If the database fails.
pub async fn story(pool: Pool<Db>) -> Result<Vec<String>, Failure> {
    prepare(&pool, TABLES).await?;
    let mut told = Vec::new();
    for (order, pieces) in [("A", 2), ("A", 2), ("B", 2), ("C", 2), ("A", 2)] {
        told.push(take(&pool, order, 1, pieces).await?);
    }
    Ok(told)
}
