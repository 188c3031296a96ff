use onlyonce_sql::guard::{GuardErrorKind, Unique, UniqueInsert, unique};
use sqlx::Row;

use super::{Shop, count};
use crate::db::Db;

fn order<'a>(id: i64, code: &'a str, amount: i64) -> UniqueInsert<'a, Db> {
    unique("orders").set("id", id).set("code", code).set("amount", amount).constraint("un_code", ["code"])
}

#[tokio::test]
async fn a_second_insert_is_told_which_row_was_there_and_the_transaction_goes_on() {
    let shop = Shop::open().await;
    let mut tx = shop.begin().await;
    assert!(matches!(order(1, "A-1", 100).run(&mut tx).await.unwrap(), Unique::Inserted));
    let Unique::AlreadyThere(row) = order(2, "A-1", 999).run(&mut tx).await.unwrap() else { panic!("twice") };
    assert_eq!((row.get::<i64, _>("id"), row.get::<i64, _>("amount")), (1, 100));
    assert!(matches!(order(3, "A-3", 1).run(&mut tx).await.unwrap(), Unique::Inserted));
    tx.commit().await.unwrap();
    assert_eq!(shop.number("SELECT count(*) FROM orders").await, 2);
}

#[tokio::test]
async fn the_violation_of_another_constraint_stays_an_error() {
    let shop = Shop::open().await;
    let mut tx = shop.begin().await;
    order(1, "A-1", 100).set("email", "a@b").run(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    for other in [order(1, "A-2", 1), order(2, "A-2", 1).set("email", "a@b")] {
        let mut tx = shop.begin().await;
        let error = other.run(&mut tx).await.unwrap_err();
        assert_eq!(error.kind(), GuardErrorKind::Database, "{error}");
        assert!(error.to_string().contains("another unique constraint"), "{error}");
    }
}

/// All its keys are violated, and a server may name any of them.
#[tokio::test]
async fn a_retry_of_the_same_row_is_told_so_whichever_constraint_is_named() {
    let shop = Shop::open().await;
    let mut tx = shop.begin().await;
    let row = || order(1, "A-1", 100).set("email", "a@b");
    assert!(matches!(row().run(&mut tx).await.unwrap(), Unique::Inserted));
    for again in [row(), row().constraint("un_email", ["email"]), row().primary_key(["id"])] {
        let Unique::AlreadyThere(found) = again.run(&mut tx).await.unwrap() else { panic!("twice") };
        assert_eq!(found.get::<i64, _>("id"), 1);
    }
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn the_primary_key_is_a_constraint_too() {
    let shop = Shop::open().await;
    let mut tx = shop.begin().await;
    for (code, first) in [("A-1", true), ("A-2", false)] {
        let order = unique("orders").set("id", 1_i64).set("code", code).primary_key(["id"]);
        assert_eq!(matches!(order.run(&mut tx).await.unwrap(), Unique::Inserted), first);
    }
}

#[tokio::test]
async fn a_row_that_was_committed_after_the_transaction_began_is_seen() {
    if !crate::db::ROW_LOCKS {
        return; // there is one writer at a time, and it began first
    }
    let shop = Shop::open().await;
    let mut tx = shop.begin().await;
    // On MySQL the transaction's view of the past begins here.
    sqlx::query("SELECT count(*) FROM orders").fetch_one(&mut *tx).await.unwrap();
    order(1, "A-1", 100).run(&mut shop.pool.acquire().await.unwrap()).await.unwrap();
    assert!(matches!(order(2, "A-1", 1).run(&mut tx).await.unwrap(), Unique::AlreadyThere(_)));
}

#[tokio::test]
async fn of_64_who_create_the_same_at_once_one_inserts() {
    let shop = Shop::with(super::WRITERS).await;
    let outcomes =
        shop.race(async |writer, tx| order(i64::from(writer), "A-1", i64::from(writer)).run(tx).await).await;
    assert_eq!(count(&outcomes, |outcome| matches!(outcome, Unique::Inserted)), 1);
    let owner = shop.number("SELECT id FROM orders").await;
    for outcome in &outcomes {
        if let Unique::AlreadyThere(row) = outcome {
            assert_eq!(row.get::<i64, _>("id"), owner);
        }
    }
}

#[tokio::test]
async fn what_is_missing_is_said() {
    let shop = Shop::open().await;
    let mut tx = shop.begin().await;
    let no_constraint = unique("orders").set("id", 1_i64).run(&mut tx).await.unwrap_err();
    assert!(no_constraint.to_string().contains(".constraint("), "{no_constraint}");
    let no_value =
        unique("orders").set("id", 1_i64).constraint("un_code", ["code"]).run(&mut tx).await.unwrap_err();
    assert!(no_value.to_string().contains("`code` of `un_code` has no value"), "{no_value}");
    for error in [no_constraint, no_value] {
        assert_eq!(error.kind(), GuardErrorKind::Input);
    }
    let missing = unique("no_such").set("id", 1_i64).primary_key(["id"]).run(&mut tx).await.unwrap_err();
    assert_eq!(missing.kind(), GuardErrorKind::MissingTable, "{missing}");
}

#[tokio::test]
async fn a_name_is_never_sql() {
    let shop = Shop::open().await;
    for table in
        ["orders; DROP TABLE orders; --", "orders\" ; DROP TABLE orders; --", "orders`; DROP TABLE orders; #"]
    {
        let mut tx = shop.begin().await;
        let error = unique(table).set("id", 1_i64).primary_key(["id"]).run(&mut tx).await.unwrap_err();
        assert_eq!(error.kind(), GuardErrorKind::MissingTable, "{error}");
    }
    assert_eq!(shop.number("SELECT count(*) FROM orders").await, 0);
}
