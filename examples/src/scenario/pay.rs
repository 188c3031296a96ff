//! Pay: the reply was lost, the client retries; the account is charged once. The account's row is locked, and the order's state
//! says whether it was paid.

use onlyonce::StateMachine;
use onlyonce::sql::guard::{Change, Locked, Transition, locked, transition, versioned};
use sqlx::{Pool, Row};

use super::{Db, Failure, prepare, transaction};

const TABLES: &str = "
    CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL);
    CREATE TABLE orders (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL, status VARCHAR(20) NOT NULL);
    INSERT INTO accounts VALUES (7, 150, 1);
    INSERT INTO orders VALUES (1, 100, 'placed'), (2, 100, 'placed');
";

#[derive(Debug, Clone, Copy, PartialEq, Eq, StateMachine)]
enum Order {
    #[to(Paid)]
    Placed,
    Paid,
}

/// Charges the account for the order, both locked: first the order, then the account, everywhere in this order. A retry, also
/// one at the same time, finds the order paid.
///
/// # Errors
/// If the database fails.
pub async fn pay(pool: &Pool<Db>, account: i64, order: i64) -> Result<String, Failure> {
    transaction(pool, async |tx| {
        let amount: i64 = match locked("orders").key("id", order).one(tx).await? {
            // First of all: a retry may find too little money, because the first try took it.
            Locked::Held(row) if row.get::<&str, _>("status") == "paid" => {
                return Ok(format!("order {order}: was paid"));
            }
            Locked::Held(row) => row.get("amount"),
            Locked::Busy => return Ok(format!("order {order}: is being paid, try again")),
            Locked::Missing => return Ok(format!("order {order}: there is none")),
        };
        let (balance, seen): (i64, i64) = match locked("accounts").key("id", account).one(tx).await? {
            Locked::Held(row) => (row.get("balance"), row.get("version")),
            Locked::Busy => return Ok(format!("order {order}: the account is busy, try again")),
            Locked::Missing => return Ok(format!("order {order}: no such account")),
        };
        if balance < amount {
            return Ok(format!("order {order}: not enough money, {balance} left"));
        }
        let paid = transition("orders", "status", Order::Paid).key("id", order).run(tx).await?;
        if paid != Transition::Applied {
            return Ok(format!("order {order}: {paid:?}"));
        }
        let account = versioned("accounts", "version").key("id", account).seen(seen);
        account.update(tx, Change::new().add("balance", -amount)).await?;
        Ok(format!("order {order}: paid, {} left", balance - amount))
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
    for order in [1, 1, 2, 1] {
        told.push(pay(&pool, 7, order).await?);
    }
    Ok(told)
}
