use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_sql::guard::{Dedup, GuardErrorKind, OperationId, dedup, migrate, sweep};

use super::{Shop, count, operation};

#[tokio::test]
async fn the_first_is_first_and_every_other_a_duplicate() {
    let shop = Shop::open().await;
    for (name, key, expected) in [
        ("send", "m-1", Dedup::First),
        ("send", "m-1", Dedup::Duplicate),
        ("send", "m-2", Dedup::First),
        ("other", "m-1", Dedup::First),
        ("send", "m-1", Dedup::Duplicate),
    ] {
        let mut tx = shop.begin().await;
        let operation = OperationId::new(name, key).unwrap();
        assert_eq!(dedup(operation).run(&mut tx).await.unwrap(), expected, "{name} {key}");
        tx.commit().await.unwrap();
    }
}

#[tokio::test]
async fn an_expired_operation_is_first_again_and_swept() {
    let shop = Shop::open().await;
    let mut connection = shop.pool.acquire().await.unwrap();
    let brief = operation("m").retain(Duration::from_millis(1));
    assert_eq!(dedup(brief.clone()).run(&mut connection).await.unwrap(), Dedup::First);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(dedup(operation("m")).run(&mut connection).await.unwrap(), Dedup::First);
    assert_eq!(dedup(operation("m")).run(&mut connection).await.unwrap(), Dedup::Duplicate);
    for key in 0..5 {
        let brief = operation(key).retain(Duration::from_millis(1));
        dedup(brief).run(&mut connection).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(sweep(&mut connection, 3).await.unwrap(), 3);
    assert_eq!(sweep(&mut connection, 3).await.unwrap(), 2);
    assert_eq!(sweep(&mut connection, 3).await.unwrap(), 0);
    assert_eq!(dedup(operation("m")).run(&mut connection).await.unwrap(), Dedup::Duplicate);
}

#[tokio::test]
async fn of_64_with_the_same_message_one_is_first() {
    let shop = Shop::with(super::WRITERS).await;
    let outcomes = shop.race(async |_, tx| dedup(operation("m")).run(tx).await).await;
    assert_eq!(count(&outcomes, |outcome| *outcome == Dedup::First), 1);
}

#[tokio::test]
async fn who_waited_for_one_that_rolled_back_is_first() {
    let shop = Shop::open().await;
    let mut tx = shop.begin().await;
    assert_eq!(dedup(operation("m")).run(&mut tx).await.unwrap(), Dedup::First);
    let others =
        async { join_all((0..4).map(|_| shop.run(async |tx| dedup(operation("m")).run(tx).await))).await };
    let rollback = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        tx.rollback().await.unwrap();
    };
    let (outcomes, ()) = tokio::join!(others, rollback);
    assert_eq!(count(&outcomes, |outcome| *outcome == Dedup::First), 1, "{outcomes:?}");
}

#[tokio::test]
async fn migrating_is_safe_for_many_at_once_and_a_missing_table_says_how() {
    let shop = Shop::open().await;
    shop.sql("DROP TABLE onlyonce_dedup").await;
    let mut connection = shop.pool.acquire().await.unwrap();
    let error = dedup(operation("m")).run(&mut connection).await.unwrap_err();
    assert_eq!(error.kind(), GuardErrorKind::MissingTable);
    assert!(error.to_string().contains("guard::migrate"), "{error}");
    drop(connection);
    let migrations =
        join_all((0..6).map(|_| async { migrate(&mut shop.pool.acquire().await.unwrap()).await }));
    for migrated in migrations.await {
        migrated.unwrap();
    }
    assert_eq!(shop.number("SELECT count(*) FROM onlyonce_dedup").await, 0);
}
