//! Many purges at once. MySQL and MariaDB find deadlocks between them, and undo one of two; nobody hears of that.
#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::fmt::Write as _;

use common::*;
use onlyonce_sql::{MySql, SqlStore};

const PURGES: usize = 6;
const ROUNDS: usize = 12;
/// Several batches, so that the ends of some meet the beginnings of others.
const EXPIRED: u64 = 1_500;

/// Records that expired long ago, with ids in no order.
async fn fill(store: &SqlStore<MySql>, table: &str) {
    let mut sql = format!(
        "INSERT INTO {table} (id, status, hash_rules, hash, fence, attempts, owner, began_over, lease_until, created_at, settled_at, \
         expires_at, route, key_hash, scope_hash) VALUES "
    );
    for n in 0..EXPIRED {
        let (comma, id) = (if n == 0 { "" } else { "," }, rand::random::<u128>());
        let hash = format!("x'{id:032x}'");
        write!(
            sql,
            "{comma}(x'{id:032x}{id:032x}', 1, 1, x'{id:032x}{id:032x}', 1, 1, {hash}, 0, 1, 1, 1, {}, 'r', {hash}, {hash})",
            n + 1
        )
        .unwrap();
    }
    MySql::say_on(store.pool(), &sql).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn six_purges_at_once_remove_everything_and_none_fails() {
    let table = table();
    let store = open_table::<MySql>(&table).await;
    for round in 0..ROUNDS {
        fill(&store, &table).await;
        // So that the server knows that a batch is a large part of them.
        MySql::say_on(store.pool(), &format!("ANALYZE TABLE {table}")).await;
        let purges: Vec<_> = (0..PURGES)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.purge(|_| ()).await })
            })
            .collect();
        let mut removed = 0;
        for purge in purges {
            removed += purge.await.unwrap().unwrap_or_else(|error| panic!("round {round}: {error:?}"));
        }
        let left = format!("SELECT COUNT(*) FROM {table}");
        let left = MySql::number_on(store.pool(), &left).await;
        assert_eq!((removed, left), (EXPIRED, 0), "round {round}: each was removed, and by one alone");
    }
}

/// The first transactions fail as those do that were chosen to give way.
#[tokio::test]
async fn a_purge_that_has_to_give_way_is_repeated() {
    let table = table();
    let store = open_table::<MySql>(&table).await;
    fill(&store, &table).await;
    // Not of InnoDB: a rollback leaves what is in it.
    let count = format!("CREATE TABLE tries_{table} (n INT) ENGINE = MyISAM");
    MySql::say_on(store.pool(), &count).await;
    let fail = format!(
        "CREATE TRIGGER fail_{table} BEFORE DELETE ON {table} FOR EACH ROW BEGIN \
         IF (SELECT COUNT(*) FROM tries_{table}) < 4 THEN \
         INSERT INTO tries_{table} VALUES (1); \
         SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock found'; \
         END IF; END"
    );
    MySql::say_on(store.pool(), &fail).await;
    assert_eq!(store.purge(|_| ()).await.unwrap(), EXPIRED);
    let tries = format!("SELECT COUNT(*) FROM tries_{table}");
    assert_eq!(MySql::number_on(store.pool(), &tries).await, 4, "it had to give way");
}
