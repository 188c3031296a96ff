//! Message: the broker delivers again what was not acknowledged in time. The dedup table, in the transaction of the work.

use onlyonce::sql::guard::{Change, Dedup, OperationId, dedup, versioned};
use sqlx::Pool;

use super::{Db, Failure, prepare, transaction};

const TABLES: &str = "
    CREATE TABLE points (member BIGINT PRIMARY KEY, total BIGINT NOT NULL, version BIGINT NOT NULL);
    INSERT INTO points VALUES (7, 0, 1);
";

/// Handles one delivery of "order completed". When this returns, the message may be acknowledged.
///
/// # Errors
/// If the database fails: then nothing has happened, and the message comes again.
pub async fn deliver(pool: &Pool<Db>, message: &str, points: i64, seen: i64) -> Result<String, Failure> {
    let operation = OperationId::new("points.add", message)?;
    transaction(pool, async |tx| {
        if dedup(operation.clone()).run(tx).await? == Dedup::Duplicate {
            return Ok(format!("{message}: handled before"));
        }
        let member = versioned("points", "version").key("member", 7_i64).seen(seen);
        member.update(tx, Change::new().add("total", points)).await?;
        Ok(format!("{message}: {points} points added"))
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
    for (message, points, seen) in [("m-1", 10, 1), ("m-1", 10, 2), ("m-2", 5, 2), ("m-1", 10, 3)] {
        told.push(deliver(&pool, message, points, seen).await?);
    }
    Ok(told)
}
