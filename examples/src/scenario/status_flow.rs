//! Status flow: an order goes from placed to paid to done, in this order and once. A state machine.

use onlyonce::StateMachine;
use onlyonce::sql::guard::{Transition, transition};
use sqlx::Pool;

use super::{Db, Failure, prepare, transaction};

const TABLES: &str = "
    CREATE TABLE orders (id BIGINT PRIMARY KEY, status INT NOT NULL);
    INSERT INTO orders VALUES (123, 1);
";

/// As in many old tables: numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, StateMachine)]
pub enum Order {
    /// Ordered.
    #[stored(1)]
    #[to(Paid, Cancelled)]
    Placed,
    /// Paid for.
    #[stored(2)]
    #[to(Done)]
    Paid,
    /// Delivered.
    #[stored(3)]
    Done,
    /// Given up.
    #[stored(4)]
    Cancelled,
}

/// Moves the order.
///
/// # Errors
/// If the database fails.
pub async fn advance(pool: &Pool<Db>, order: i64, to: Order) -> Result<String, Failure> {
    transaction(pool, async |tx| {
        Ok(match transition("orders", "status", to).key("id", order).run(tx).await? {
            Transition::Applied => format!("{order} is {to:?}"),
            Transition::AlreadyInTarget | Transition::Duplicate(_) => format!("{order} was {to:?}"),
            Transition::Illegal { from, to } => format!("{order} is {from:?} and can't be {to:?}"),
            Transition::NotFound => format!("no order {order}"),
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
    for (order, to) in [
        (123, Order::Done),
        (123, Order::Paid),
        (123, Order::Paid),
        (123, Order::Done),
        (123, Order::Cancelled),
        (9, Order::Paid),
    ] {
        told.push(advance(&pool, order, to).await?);
    }
    Ok(told)
}
