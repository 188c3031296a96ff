//! How often the happy path of each guard crosses the network, counted by a proxy.

use onlyonce_macros::StateMachine;
use onlyonce_sql::guard::{
    Change, Dedup, GuardError, Locked, Sequence, SequenceKey, Transition, Unique, Versioned, dedup, locked,
    sequence, transition, unique, versioned,
};
use onlyonce_testkit::FaultProxy;
use sqlx::Transaction;

use crate::db::{Db, WITH_OPERATION, url};
use crate::guard::{Shop, operation};

#[derive(Debug, Clone, Copy, PartialEq, Eq, StateMachine)]
#[machine(crate = onlyonce_core)]
enum Order {
    #[to(Paid)]
    Placed,
    #[to(Placed)]
    Paid,
}

/// `host:port` of the server.
fn address() -> String {
    let url = url();
    let (_, rest) = url.split_once('@').unwrap();
    rest.split('/').next().unwrap().to_owned()
}

type Tx = Transaction<'static, Db>;

async fn trips(
    proxy: &FaultProxy,
    tx: &mut Tx,
    step: impl AsyncFn(&mut Tx, i64) -> Result<bool, GuardError>,
) -> usize {
    // Twice before: the statements are prepared, on MySQL by a round trip of their own.
    for number in 1..3 {
        assert!(step(tx, number).await.unwrap());
    }
    let before = proxy.traffic().exchanges;
    assert!(step(tx, 3).await.unwrap(), "not the happy path");
    usize::try_from(proxy.traffic().exchanges - before).unwrap()
}

#[tokio::test]
async fn the_happy_path_of_every_guard_is_one_round_trip() {
    let shop = Shop::open().await;
    shop.sql("INSERT INTO orders (id, code) VALUES (1, 'A-1')").await;
    shop.sql("INSERT INTO stock VALUES (1, 10, 1)").await;
    let proxy = FaultProxy::start(address()).await.unwrap();
    let through = shop.home.url.replace(&address(), &proxy.address().to_string());
    let pool = shop.home.pool(&through, 1).await;
    let mut tx = pool.begin().await.unwrap();

    let insert = async |tx: &mut Tx, number: i64| {
        let code = format!("B-{number}");
        let row = unique("orders").set("id", number + 10).set("code", code).primary_key(["id"]);
        Ok(matches!(row.run(tx).await?, Unique::Inserted))
    };
    assert_eq!(trips(&proxy, &mut tx, insert).await, 1, "unique");

    let first = async |tx: &mut Tx, number: i64| Ok(dedup(operation(number)).run(tx).await? == Dedup::First);
    assert_eq!(trips(&proxy, &mut tx, first).await, 1, "dedup");

    let hold = async |tx: &mut Tx, _: i64| {
        Ok(matches!(locked("stock").key("id", 1_i64).one(tx).await?, Locked::Held(_)))
    };
    assert_eq!(trips(&proxy, &mut tx, hold).await, 1, "locked");

    let update = async |tx: &mut Tx, number: i64| {
        let row = versioned("stock", "version").key("id", 1_i64).seen(number);
        Ok(matches!(row.update(tx, Change::new().add("amount", -1_i64)).await?, Versioned::Applied { .. }))
    };
    assert_eq!(trips(&proxy, &mut tx, update).await, 1, "versioned");

    let update = async |tx: &mut Tx, number: i64| {
        let row = versioned("stock", "version").key("id", 1_i64).seen(number + 3);
        let row = row.operation(operation(format!("take-{number}")));
        Ok(matches!(row.update(tx, Change::new().add("amount", -1_i64)).await?, Versioned::Applied { .. }))
    };
    assert_eq!(trips(&proxy, &mut tx, update).await, WITH_OPERATION, "versioned, with an operation id");

    let step = async |tx: &mut Tx, number: i64| {
        let to = if number % 2 == 1 { Order::Paid } else { Order::Placed };
        Ok(transition("orders", "status", to).key("id", 1_i64).run(tx).await? == Transition::Applied)
    };
    assert_eq!(trips(&proxy, &mut tx, step).await, 1, "transition");

    for increasing in [false, true] {
        let accept = async |tx: &mut Tx, number: i64| {
            let entry = sequence(SequenceKey::new("shop-7", number.unsigned_abs()).unwrap());
            let entry = if increasing { entry.strictly_increasing() } else { entry };
            Ok(entry.run(tx).await? == Sequence::Accepted)
        };
        assert_eq!(trips(&proxy, &mut tx, accept).await, 1, "sequence, increasing: {increasing}");
    }
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_bounded_wait_leaves_the_setting_of_the_connection_as_it_was() {
    use std::time::Duration;

    use crate::db::LOCK_TIMEOUT;
    let shop = Shop::open().await;
    shop.sql("INSERT INTO stock VALUES (1, 10, 1), (2, 10, 1)").await;
    let mut holder = shop.begin().await;
    locked("stock").key("id", 1_i64).one(&mut holder).await.unwrap();
    let mut other = shop.begin().await;
    let setting =
        async |tx: &mut Tx| sqlx::query_scalar::<_, String>(LOCK_TIMEOUT).fetch_one(&mut **tx).await.unwrap();
    let before = setting(&mut other).await;
    let busy =
        locked("stock").key("id", 1_i64).wait(Duration::from_millis(200)).one(&mut other).await.unwrap();
    assert!(matches!(busy, Locked::Busy));
    assert_eq!(setting(&mut other).await, before);
    let held =
        locked("stock").keys("id", [2_i64]).wait(Duration::from_millis(200)).all(&mut other).await.unwrap();
    assert!(matches!(held, Locked::Held(_)));
    assert_eq!(setting(&mut other).await, before);
}

/// On PostgreSQL a dropped guard leaves its transaction with the short wait, which ends with it.
#[tokio::test]
async fn a_wait_that_is_dropped_half_way_leaves_the_setting_of_the_connection_as_it_was() {
    use std::time::Duration;

    use crate::db::LOCK_TIMEOUT;
    let shop = Shop::open().await;
    shop.sql("INSERT INTO stock VALUES (1, 10, 1)").await;
    let mut holder = shop.begin().await;
    locked("stock").key("id", 1_i64).one(&mut holder).await.unwrap();
    // One connection: whoever comes next gets the same.
    let pool = shop.home.pool(&shop.home.url, 1).await;
    let setting = async || sqlx::query_scalar::<_, String>(LOCK_TIMEOUT).fetch_one(&pool).await.unwrap();
    let before = setting().await;
    let mut other = pool.begin().await.unwrap();
    let waiting = locked("stock").key("id", 1_i64).wait(Duration::from_secs(7)).one(&mut other);
    let dropped = tokio::time::timeout(Duration::from_millis(500), waiting).await;
    assert!(dropped.is_err(), "somebody holds the row");
    drop(other);
    holder.rollback().await.unwrap();
    assert_eq!(setting().await, before);
}
