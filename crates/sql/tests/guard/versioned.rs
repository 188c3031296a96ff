use onlyonce_sql::guard::{Change, GuardErrorKind, Unique, Versioned, VersionedRow, unique, versioned};
use sqlx::Row;

use super::{Shop, WRITERS, count, operation};
use crate::db::Db;

fn stock<'a>(id: i64) -> VersionedRow<'a, Db> {
    versioned("stock", "version").key("id", id)
}

fn take<'a>(amount: i64) -> Change<'a, Db> {
    Change::new().add("amount", -amount).at_least("amount", amount)
}

async fn shop(amount: i64) -> Shop {
    let shop = Shop::with(WRITERS).await;
    shop.sql(&format!("INSERT INTO stock VALUES (1, {amount}, 1)")).await;
    shop
}

#[tokio::test]
async fn done_conflict_unmet_and_missing_are_told_apart() {
    let shop = shop(10).await;
    let mut tx = shop.begin().await;
    assert!(matches!(
        stock(1).seen(1).update(&mut tx, take(4)).await.unwrap(),
        Versioned::Applied { version: 2 }
    ));
    let Versioned::Conflict(now) = stock(1).seen(1).update(&mut tx, take(4)).await.unwrap() else {
        panic!("stale")
    };
    assert_eq!((now.get::<i64, _>("amount"), now.get::<i32, _>("version")), (6, 2));
    let Versioned::Unmet(now) = stock(1).seen(2).update(&mut tx, take(7)).await.unwrap() else {
        panic!("sold out")
    };
    assert_eq!(now.get::<i64, _>("amount"), 6);
    assert!(matches!(stock(9).seen(1).update(&mut tx, take(1)).await.unwrap(), Versioned::NotFound));
    tx.commit().await.unwrap();
    assert_eq!(shop.number("SELECT amount FROM stock").await, 6);
}

#[tokio::test]
async fn a_duplicate_is_told_even_if_the_row_has_moved_on() {
    let shop = shop(10).await;
    for expected in [8, 8] {
        let outcome =
            shop.run(async |tx| stock(1).seen(1).operation(operation("o")).update(tx, take(2)).await).await;
        let first = matches!(outcome, Versioned::Applied { version: 2 });
        assert!(
            first || matches!(&outcome, Versioned::Duplicate(id) if *id == operation("o")),
            "{outcome:?}"
        );
        assert_eq!(shop.number("SELECT amount FROM stock").await, expected);
        if !first {
            return;
        }
    }
    panic!("never a duplicate");
}

#[tokio::test]
async fn under_an_operation_id_a_conflict_is_retried_on_the_row_as_it_is_now() {
    let shop = shop(10).await;
    let mut tx = shop.begin().await;
    for (key, left) in [("a", 8), ("b", 6), ("c", 4)] {
        let outcome = stock(1).seen(1).operation(operation(key)).update(&mut tx, take(2)).await.unwrap();
        assert!(
            matches!(outcome, Versioned::Applied { version } if version == 2 + (8 - left) / 2),
            "{outcome:?}"
        );
    }
    let outcome = stock(1).seen(1).operation(operation("d")).update(&mut tx, take(5)).await.unwrap();
    assert!(matches!(outcome, Versioned::Unmet(_)), "{outcome:?}");
    // What did nothing was not recorded.
    let outcome = stock(1).seen(4).operation(operation("d")).update(&mut tx, take(4)).await.unwrap();
    assert!(matches!(outcome, Versioned::Applied { version: 5 }), "{outcome:?}");
    tx.commit().await.unwrap();
    assert_eq!(shop.number("SELECT amount FROM stock").await, 0);
}

#[tokio::test]
async fn what_is_set_came_from_the_old_row_and_is_made_anew_or_a_conflict() {
    let shop = shop(10).await;
    let mut tx = shop.begin().await;
    stock(1).seen(1).update(&mut tx, take(3)).await.unwrap();
    let set = || Change::new().set("amount", 10_i64 - 2);
    let outcome = stock(1).seen(1).operation(operation("a")).update(&mut tx, set()).await.unwrap();
    assert!(matches!(outcome, Versioned::Conflict(_)), "{outcome:?}");
    let anew = stock(1).seen(1).operation(operation("a"));
    let anew = anew.recompute(|now| Some(Change::new().set("amount", now.get::<i64, _>("amount") - 2)));
    assert!(matches!(anew.update(&mut tx, set()).await.unwrap(), Versioned::Applied { version: 3 }));
    let given_up = stock(1).seen(1).operation(operation("b")).recompute(|_| None);
    assert!(matches!(given_up.update(&mut tx, set()).await.unwrap(), Versioned::Conflict(_)));
    tx.commit().await.unwrap();
    assert_eq!(shop.number("SELECT amount FROM stock").await, 5);
}

#[tokio::test]
async fn without_an_operation_id_nothing_is_retried() {
    let shop = shop(10).await;
    let mut tx = shop.begin().await;
    let error = stock(1).seen(1).recompute(|_| None).update(&mut tx, take(1)).await.unwrap_err();
    assert_eq!(error.kind(), GuardErrorKind::Input);
    assert!(error.to_string().contains("operation id"), "{error}");
    for incomplete in [versioned("stock", "version").seen(1), stock(1)] {
        let error = incomplete.update(&mut tx, take(1)).await.unwrap_err();
        assert_eq!(error.kind(), GuardErrorKind::Input, "{error}");
    }
}

#[tokio::test]
async fn of_64_buyers_of_10_pieces_10_get_one_and_none_is_oversold() {
    let shop = shop(10).await;
    let outcomes = shop
        .race(async |writer, tx| stock(1).seen(1).operation(operation(writer)).update(tx, take(1)).await)
        .await;
    assert_eq!(count(&outcomes, |outcome| matches!(outcome, Versioned::Applied { .. })), 10);
    assert_eq!(count(&outcomes, |outcome| matches!(outcome, Versioned::Unmet(_))), 54);
    assert_eq!(shop.number("SELECT amount FROM stock").await, 0);
}

#[tokio::test]
async fn of_64_copies_of_8_purchases_each_purchase_is_applied_once() {
    let shop = shop(100).await;
    let outcomes = shop
        .race(async |writer, tx| stock(1).seen(1).operation(operation(writer % 8)).update(tx, take(1)).await)
        .await;
    assert_eq!(count(&outcomes, |outcome| matches!(outcome, Versioned::Applied { .. })), 8);
    assert_eq!(count(&outcomes, |outcome| matches!(outcome, Versioned::Duplicate(_))), 56);
    assert_eq!(shop.number("SELECT amount FROM stock").await, 92);
}

#[tokio::test]
async fn of_64_who_saw_the_same_version_one_changes_it() {
    let shop = shop(100).await;
    let outcomes = shop.race(async |_, tx| stock(1).seen(1).update(tx, take(1)).await).await;
    assert_eq!(count(&outcomes, |outcome| matches!(outcome, Versioned::Applied { version: 2 })), 1);
    assert_eq!(count(&outcomes, |outcome| matches!(outcome, Versioned::Conflict(_))), 63);
    assert_eq!(shop.number("SELECT amount FROM stock").await, 99);
}

#[tokio::test]
async fn an_old_delete_does_not_touch_a_row_that_was_created_again() {
    let shop = Shop::open().await;
    let mut tx = shop.begin().await;
    let create = |text| {
        unique::<Db>("posts").set("id", 1_i64).set("text", text).first_version("version").primary_key(["id"])
    };
    assert!(matches!(create("old").run(&mut tx).await.unwrap(), Unique::Inserted));
    let Unique::AlreadyThere(post) = create("old").run(&mut tx).await.unwrap() else { panic!("gone") };
    let seen: i64 = post.get("version");
    let delete = || versioned("posts", "version").key("id", 1_i64).seen(seen);
    assert!(
        matches!(delete().delete(&mut tx).await.unwrap(), Versioned::Applied { version } if version == seen)
    );
    assert!(matches!(delete().delete(&mut tx).await.unwrap(), Versioned::NotFound));
    assert!(matches!(create("new").run(&mut tx).await.unwrap(), Unique::Inserted));
    let Versioned::Conflict(post) = delete().delete(&mut tx).await.unwrap() else {
        panic!("deleted the new one")
    };
    assert_eq!(post.get::<String, _>("text"), "new");
    tx.commit().await.unwrap();
    assert_eq!(shop.number("SELECT count(*) FROM posts").await, 1);
}

#[tokio::test]
async fn a_duplicate_of_a_delete_is_told_even_if_versions_start_anew() {
    let shop = shop(1).await;
    let mut tx = shop.begin().await;
    let delete = || stock(1).seen(1).operation(operation("delete-1"));
    assert!(matches!(delete().delete(&mut tx).await.unwrap(), Versioned::Applied { .. }));
    sqlx::query("INSERT INTO stock VALUES (1, 5, 1)").execute(&mut *tx).await.unwrap();
    assert!(matches!(delete().delete(&mut tx).await.unwrap(), Versioned::Duplicate(_)));
    tx.commit().await.unwrap();
    assert_eq!(shop.number("SELECT amount FROM stock").await, 5);
}
