use std::time::Duration;

use onlyonce_sql::guard::{GuardErrorKind, Locked, RowLock, locked};
use sqlx::Row;

use super::{Shop, count};
use crate::db::{Db, ROW_LOCKS};

fn stock<'a>(id: i64) -> RowLock<'a, Db> {
    locked("stock").key("id", id)
}

async fn three() -> Shop {
    let shop = Shop::open().await;
    shop.sql("INSERT INTO stock VALUES (1, 10, 1), (2, 20, 1), (3, 30, 1)").await;
    shop
}

#[tokio::test]
async fn a_held_row_is_busy_for_others_whose_transactions_go_on() {
    let shop = three().await;
    let mut holder = shop.begin().await;
    let Locked::Held(row) = stock(1).one(&mut holder).await.unwrap() else { panic!("free") };
    assert_eq!(row.get::<i64, _>("amount"), 10);
    // Not IMMEDIATE: there the second would wait at its BEGIN.
    let mut other = shop.pool.begin().await.unwrap();
    for lock in [stock(1).no_wait(), stock(1).wait(Duration::from_millis(300))] {
        assert!(matches!(lock.one(&mut other).await.unwrap(), Locked::Busy));
    }
    if ROW_LOCKS {
        let Locked::Held(row) = stock(2).one(&mut other).await.unwrap() else {
            panic!("another row is free")
        };
        assert_eq!(row.get::<i64, _>("amount"), 20);
    }
    sqlx::query("SELECT 1").execute(&mut *other).await.unwrap();
    drop(holder);
    assert!(matches!(stock(1).one(&mut other).await.unwrap(), Locked::Held(_)));
    other.commit().await.unwrap();
}

#[tokio::test]
async fn a_lock_is_handed_over_when_its_transaction_ends() {
    let shop = three().await;
    let mut holder = shop.begin().await;
    stock(1).one(&mut holder).await.unwrap();
    let mut other = shop.pool.begin().await.unwrap();
    let wait = async { stock(1).wait(Duration::from_secs(60)).one(&mut other).await.unwrap() };
    let end = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        holder.commit().await.unwrap();
    };
    let (outcome, ()) = tokio::join!(wait, end);
    assert!(matches!(outcome, Locked::Held(_)));
}

#[tokio::test]
async fn a_missing_row_is_told_from_a_busy_one() {
    let shop = three().await;
    let mut tx = shop.begin().await;
    assert!(matches!(stock(9).one(&mut tx).await.unwrap(), Locked::Missing));
    assert!(matches!(stock(9).no_wait().one(&mut tx).await.unwrap(), Locked::Missing));
    assert!(matches!(stock(9).wait_as_the_server().one(&mut tx).await.unwrap(), Locked::Missing));
    let some = locked("stock").keys("id", [1_i64, 9]).all(&mut tx).await.unwrap();
    assert!(matches!(some, Locked::Missing));
}

/// A transaction that has read before, and may go on seeing what there was then.
async fn early(shop: &Shop) -> sqlx::Transaction<'static, Db> {
    let mut early = shop.begin().await;
    sqlx::query("SELECT * FROM stock").fetch_all(&mut *early).await.unwrap();
    early
}

#[tokio::test]
async fn a_row_that_was_deleted_since_the_first_read_is_missing() {
    if !ROW_LOCKS {
        return; // nothing can be locked there after others wrote; see `locked`
    }
    let shop = three().await;
    let mut early = early(&shop).await;
    shop.sql("DELETE FROM stock WHERE id = 1").await;
    for lock in [stock(1).no_wait(), stock(1), stock(1).wait_as_the_server()] {
        let gone = lock.one(&mut early).await.unwrap();
        assert!(matches!(gone, Locked::Missing), "{gone:?}");
    }
}

#[tokio::test]
async fn a_row_that_was_inserted_since_the_first_read_and_is_held_is_busy() {
    if !ROW_LOCKS {
        return; // nothing can be locked there after others wrote; see `locked`
    }
    let shop = three().await;
    let mut early = early(&shop).await;
    shop.sql("INSERT INTO stock VALUES (4, 40, 1)").await;
    let mut holder = shop.begin().await;
    assert!(matches!(stock(4).one(&mut holder).await.unwrap(), Locked::Held(_)));
    for lock in [stock(4).wait(Duration::from_millis(300)), stock(4).no_wait()] {
        let busy = lock.one(&mut early).await.unwrap();
        assert!(matches!(busy, Locked::Busy), "{busy:?}");
    }
    let both = || locked("stock").keys("id", [2_i64, 4]).no_wait();
    assert!(matches!(both().all(&mut early).await.unwrap(), Locked::Busy));
    let wait = async { stock(4).wait(Duration::from_secs(60)).one(&mut early).await.unwrap() };
    let end = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        holder.commit().await.unwrap();
    };
    let (handed, ()) = tokio::join!(wait, end);
    assert!(matches!(handed, Locked::Held(_)), "{handed:?}");
    assert!(matches!(both().all(&mut early).await.unwrap(), Locked::Held(rows) if rows.len() == 2));
}

#[tokio::test]
async fn all_are_locked_in_the_order_of_their_keys() {
    let shop = three().await;
    let mut tx = shop.begin().await;
    let Locked::Held(rows) = locked("stock").keys("id", [3_i64, 1, 2, 1]).all(&mut tx).await.unwrap() else {
        panic!("free")
    };
    assert_eq!(rows.iter().map(|row| row.get::<i64, _>("id")).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(
        matches!(locked("stock").keys("id", Vec::<i64>::new()).all(&mut tx).await.unwrap(), Locked::Held(rows) if rows.is_empty())
    );
}

#[tokio::test]
async fn transfers_in_opposite_directions_never_deadlock() {
    let shop = three().await;
    let transfer = async |from: i64, to: i64| {
        for _ in 0..20 {
            let mut tx = shop.begin().await;
            let both =
                locked("stock").keys("id", [from, to]).wait(Duration::from_secs(60)).all(&mut tx).await;
            assert!(matches!(both.unwrap(), Locked::Held(_)));
            for (id, amount) in [(from, -1), (to, 1)] {
                let sql = format!("UPDATE stock SET amount = amount + {amount} WHERE id = {id}");
                sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut *tx).await.unwrap();
            }
            tx.commit().await.unwrap();
        }
    };
    tokio::join!(transfer(1, 2), transfer(2, 1), transfer(2, 3), transfer(3, 1));
    for (id, amount) in [(1, 30), (2, 0), (3, 30)] {
        assert_eq!(shop.number(&format!("SELECT amount FROM stock WHERE id = {id}")).await, amount, "{id}");
    }
}

#[tokio::test]
async fn each_worker_of_a_queue_gets_other_rows() {
    if !ROW_LOCKS {
        return; // one worker at a time has the database
    }
    let shop = three().await;
    let (mut one, mut other) = (shop.begin().await, shop.begin().await);
    let first = locked("stock").key("version", 1).order_by("id").some(&mut one, 2).await.unwrap();
    let rest = locked("stock").key("version", 1).order_by("id").some(&mut other, 9).await.unwrap();
    let ids = |rows: &[<Db as sqlx::Database>::Row]| {
        rows.iter().map(|row| row.get::<i64, _>("id")).collect::<Vec<_>>()
    };
    assert_eq!((ids(&first), ids(&rest)), (vec![1, 2], vec![3]));
}

#[tokio::test]
async fn of_64_who_withdraw_at_once_only_those_succeed_who_are_covered() {
    let shop = Shop::with(super::WRITERS).await;
    shop.sql("INSERT INTO stock VALUES (1, 150, 1)").await;
    let outcomes = shop
        .race(async |_, tx| {
            let Locked::Held(row) = stock(1).wait(Duration::from_secs(100)).one(tx).await? else {
                panic!("busy")
            };
            if row.get::<i64, _>("amount") < 10 {
                return Ok(false);
            }
            let sql = "UPDATE stock SET amount = amount - 10 WHERE id = 1";
            sqlx::query(sql).execute(&mut **tx).await.unwrap();
            Ok(true)
        })
        .await;
    assert_eq!(count(&outcomes, |paid| *paid), 15);
    assert_eq!(shop.number("SELECT amount FROM stock").await, 0);
}

#[tokio::test]
async fn a_question_that_makes_no_sense_is_refused() {
    let shop = three().await;
    let mut tx = shop.begin().await;
    for error in [
        locked("stock").one(&mut tx).await.unwrap_err(),
        locked("stock").key("id", 1_i64).all(&mut tx).await.unwrap_err(),
        locked("stock").keys("id", [1_i64]).one(&mut tx).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), GuardErrorKind::Input, "{error}");
    }
}
