//! What is asked wrongly is refused, in words that say what to do; nothing is done half.

use std::time::Duration;

use onlyonce_macros::StateMachine;
use onlyonce_sql::guard::{
    Change, GuardErrorKind, OperationId, Unique, Versioned, dedup, locked, sequence, transition, unique,
    versioned,
};

use super::{Shop, operation};
use crate::db::Db;

#[derive(Debug, Clone, Copy, PartialEq, Eq, StateMachine)]
#[machine(crate = onlyonce_core)]
enum Lamp {
    #[to(On)]
    Off,
    On,
}

/// Handlers and tasks have to be able to await them.
#[tokio::test]
async fn every_guard_can_be_awaited_in_a_task() {
    let shop = Shop::open().await;
    shop.sql("INSERT INTO stock VALUES (1, 10, 1)").await;
    shop.sql("INSERT INTO orders (id, code, status) VALUES (1, 'A-1', 'off')").await;
    let mut tx = shop.begin().await;
    let task = tokio::spawn(async move {
        let taken = versioned("stock", "version").key("id", 1_i64).seen(1).operation(operation("o"));
        let again = |_: &_| Some(Change::new().add("amount", -1_i64));
        let taken = taken.recompute(again).update(&mut tx, Change::new().add("amount", -1_i64)).await;
        assert!(matches!(taken.unwrap(), Versioned::Applied { version: 2 }));
        let gone = versioned("stock", "version").key("id", 1_i64).seen(2).delete(&mut tx).await;
        assert!(matches!(gone.unwrap(), Versioned::Applied { version: 2 }));
        transition("orders", "status", Lamp::On).key("id", 1_i64).run(&mut tx).await.unwrap();
        let order = unique("orders").set("id", 2_i64).set("code", "A-2").primary_key(["id"]);
        assert!(matches!(order.run(&mut tx).await.unwrap(), Unique::Inserted));
        locked("orders").key("id", 1_i64).one(&mut tx).await.unwrap();
        dedup(operation("d")).run(&mut tx).await.unwrap();
        sequence(onlyonce_core::SequenceKey::new("till-7", 1).unwrap()).run(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
    });
    task.await.unwrap();
}

#[tokio::test]
async fn columns_that_are_not_those_of_the_constraint_are_refused() {
    let shop = Shop::open().await;
    shop.sql("INSERT INTO orders (id, code, amount) VALUES (1, 'A-1', 7), (2, 'B-1', 7)").await;
    let mut tx = shop.begin().await;
    let order = unique("orders").set("id", 3_i64).set("code", "B-1").set("amount", 7_i64);
    let error = order.constraint("un_code", ["amount"]).run(&mut tx).await.unwrap_err();
    assert_eq!(error.kind(), GuardErrorKind::Input, "{error}");
    assert!(error.to_string().contains("no unique index is over exactly the columns"), "{error}");
}

#[tokio::test]
async fn a_column_is_given_one_value() {
    let shop = Shop::open().await;
    shop.sql("INSERT INTO stock VALUES (1, 10, 1)").await;
    let mut tx = shop.begin().await;
    let twice = Change::<Db>::new().add("amount", -1_i64).add("Amount", -1_i64);
    let both = Change::<Db>::new().set("amount", 5_i64).add("amount", -1_i64);
    let own = Change::<Db>::new().set("version", 100_i64);
    for (change, says) in [
        (twice, "the column `Amount` is given more than one value"),
        (both, "the column `amount` is given more than one value"),
        (own, "the column `version` is changed by the guard itself"),
    ] {
        let row = versioned("stock", "version").key("id", 1_i64).seen(1);
        let error = row.update(&mut tx, change).await.unwrap_err();
        assert_eq!(error.kind(), GuardErrorKind::Input, "{error}");
        assert!(
            error.to_string().starts_with("guard::versioned: ") && error.to_string().contains(says),
            "{error}"
        );
    }
    let state = transition("orders", "status", Lamp::On).key("id", 1_i64).set("status", "off");
    let error = state.run(&mut tx).await.unwrap_err();
    assert!(error.to_string().contains("the column `status` is changed by the guard itself"), "{error}");
    let order = unique::<Db>("orders").set("id", 1_i64).set("id", 2_i64).primary_key(["id"]);
    let error = order.run(&mut tx).await.unwrap_err();
    assert!(error.to_string().contains("the column `id` is given more than one value"), "{error}");
    drop(tx);
    assert_eq!(shop.number("SELECT amount FROM stock").await, 10);
}

#[tokio::test]
async fn a_key_of_several_rows_is_an_error_and_says_to_roll_back() {
    let shop = Shop::open().await;
    shop.sql("INSERT INTO stock VALUES (1, 10, 1), (2, 10, 1)").await;
    shop.sql("INSERT INTO orders (id, code, status, amount) VALUES (1, 'A', 'off', 7), (2, 'B', 'off', 7)")
        .await;
    for under in [None, Some(operation("o"))] {
        let row = || {
            let row = versioned("stock", "version").key("amount", 10_i64).seen(1);
            under.iter().cloned().fold(row, |row, id| row.operation(id))
        };
        let state = transition("orders", "status", Lamp::On).key("amount", 7_i64);
        let mut tx = shop.begin().await;
        let updated = row().update(&mut tx, Change::new().set("amount", 1_i64)).await.unwrap_err();
        tx.rollback().await.unwrap();
        let mut tx = shop.begin().await;
        let deleted = row().delete(&mut tx).await.unwrap_err();
        tx.rollback().await.unwrap();
        let mut tx = shop.begin().await;
        let moved = state.run(&mut tx).await.unwrap_err();
        tx.rollback().await.unwrap();
        for error in [updated, deleted, moved] {
            assert_eq!(error.kind(), GuardErrorKind::Data, "{error}");
            assert!(
                error.to_string().contains("2 rows have this key") && error.to_string().contains("roll back")
            );
        }
    }
    assert_eq!(shop.number("SELECT count(*) FROM stock WHERE amount = 10 AND version = 1").await, 2);
}

#[tokio::test]
async fn a_version_or_a_state_that_is_null_is_told() {
    let shop = Shop::open().await;
    shop.sql("CREATE TABLE loose (id BIGINT PRIMARY KEY, version BIGINT, state VARCHAR(20))").await;
    shop.sql("INSERT INTO loose (id) VALUES (1)").await;
    let row = versioned("loose", "version").key("id", 1_i64).seen(1);
    let version = row.delete(&mut shop.begin().await).await.unwrap_err();
    let state = transition("loose", "state", Lamp::On).key("id", 1_i64);
    let state = state.run(&mut shop.begin().await).await.unwrap_err();
    for (error, says) in [
        (version, "the version `version` of the row is NULL"),
        (state, "the state `state` of the row is NULL"),
    ] {
        assert_eq!(error.kind(), GuardErrorKind::Data, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[tokio::test]
async fn an_operation_that_could_not_be_recognised_is_refused() {
    assert!(OperationId::new("a\0b", "k").unwrap_err().to_string().contains("control characters"));
    let shop = Shop::open().await;
    let forgotten = dedup(operation("o").retain(Duration::ZERO));
    let error = forgotten.run(&mut shop.begin().await).await.unwrap_err();
    assert_eq!(error.kind(), GuardErrorKind::Input, "{error}");
    assert!(error.to_string().starts_with("guard::dedup: `retain` is zero"), "{error}");
    let error = locked::<Db>("").key("id", 1_i64).one(&mut shop.begin().await).await.unwrap_err();
    assert!(error.to_string().starts_with("guard::locked: the name of a table"), "{error}");
}
