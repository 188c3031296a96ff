//! Opening: what is wrong is said, and what to do about it.
#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use onlyonce_core::{ErrorKind, Inspect as _, Store as _};
use onlyonce_sql::{MySql, OpenError, Postgres, SqlStore, Sqlite};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Executor as _};

on_each! {
    a_missing_table_says_how_to_migrate,
    migrating_is_safe_for_many_at_once_and_again,
    a_name_that_could_be_sql_is_refused,
    a_wrong_url_says_what_it_begins_with,
    two_tables_do_not_share_records,
    a_table_that_vanishes_is_rejected_with_a_hint,
    a_purge_removes_what_expired_and_tells_how_far_it_is,
}

async fn a_missing_table_says_how_to_migrate<DB: Served>() {
    let error = SqlStore::<DB>::builder(DB::url()).table(table()).open().await.unwrap_err();
    assert!(matches!(error, OpenError::NotMigrated { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains(".migrate()") && said.contains("migrations/"), "{said}");
}

async fn migrating_is_safe_for_many_at_once_and_again<DB: Served>() {
    let name = table();
    let all: Vec<_> = (0..4)
        .map(|_| {
            let name = name.clone();
            tokio::spawn(async move { open_table::<DB>(&name).await })
        })
        .collect();
    for one in all {
        let store = one.await.unwrap();
        assert!(begin(&store, &id()).await.unwrap().is_some());
    }
    open_table::<DB>(&name).await;
}

async fn a_name_that_could_be_sql_is_refused<DB: Served>() {
    for bad in ["a b", "x; DROP TABLE y", "", "Records"] {
        let error = SqlStore::<DB>::builder(DB::url()).table(bad).open().await.unwrap_err();
        assert!(matches!(error, OpenError::Name(_)), "{error:?}");
        assert!(error.source().unwrap().to_string().contains("lower-case"), "{error:?}");
    }
}

async fn a_wrong_url_says_what_it_begins_with<DB: Served>() {
    let said = SqlStore::<DB>::open("http://localhost").await.unwrap_err().to_string();
    assert!(said.contains("begins with"), "{said}");
}

async fn two_tables_do_not_share_records<DB: Served>() {
    let (one, other, id) = (open::<DB>().await, open::<DB>().await, id());
    assert!(begin(&one, &id).await.unwrap().is_some());
    assert!(begin(&other, &id).await.unwrap().is_some());
    assert!(begin(&one, &id).await.unwrap().is_none());
}

async fn a_table_that_vanishes_is_rejected_with_a_hint<DB: Served>()
where
    for<'c> &'c sqlx::Pool<DB>: sqlx::Executor<'c, Database = DB>,
{
    let name = table();
    let store = open_table::<DB>(&name).await;
    store.pool().execute(AssertSqlSafe(format!("DROP TABLE {name}"))).await.unwrap();
    let error = begin(&store, &id()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    assert!(error.source().unwrap().to_string().contains("migrate()"), "{error:?}");
}

async fn a_purge_removes_what_expired_and_tells_how_far_it_is<DB: Served>() {
    let store = open::<DB>().await;
    for n in 0..60 {
        let (id, retain) = (id(), Duration::from_secs(if n % 2 == 0 { 0 } else { 600 }));
        let attempt = begin(&store, &id).await.unwrap().unwrap();
        let how = onlyonce_core::Settlement { retain, ..completed("done") };
        store.settle(&id, &attempt, &how).await.unwrap();
    }
    let alive = id();
    begin(&store, &alive).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    // Two at once: together they remove everything, and nothing twice.
    let purge = async |store: &SqlStore<DB>| {
        let mut told = 0;
        let removed = store.purge(|progress| told = progress.removed).await.unwrap();
        assert_eq!(told, removed);
        removed
    };
    let (one, other) = tokio::join!(purge(&store), purge(&store));
    let left = if one + other < 30 { purge(&store).await } else { 0 };
    assert_eq!(one + other + left, 30);
    assert_eq!(store.count().await.unwrap().values().sum::<u64>(), 31);
    assert!(store.get(&alive).await.unwrap().is_some());
}

#[tokio::test]
async fn an_older_schema_says_which_migration_is_missing() {
    let name = table();
    let store = open_table::<Postgres>(&name).await;
    let older =
        format!("DELETE FROM {name}_migrations WHERE version = 2; DROP INDEX {name}_open, {name}_key");
    sqlx::raw_sql(AssertSqlSafe(older)).execute(store.pool()).await.unwrap();
    let error = SqlStore::<Postgres>::builder(Postgres::url()).table(&*name).open().await.unwrap_err();
    assert!(error.to_string().contains("0002_console.sql"), "{error}");
    open_table::<Postgres>(&name).await;

    let newer = format!("INSERT INTO {name}_migrations (version) VALUES (3)");
    store.pool().execute(AssertSqlSafe(newer)).await.unwrap();
    let error = SqlStore::<Postgres>::builder(Postgres::url()).table(&*name).open().await.unwrap_err();
    assert!(matches!(error, OpenError::NewerSchema { .. }), "{error}");
}

#[tokio::test]
async fn a_migration_that_was_applied_but_not_noted_is_noted() {
    let name = table();
    let store = open_table::<MySql>(&name).await;
    let forget = format!("DELETE FROM {name}_migrations WHERE version = 2");
    store.pool().execute(AssertSqlSafe(forget)).await.unwrap();
    open_table::<MySql>(&name).await;
    SqlStore::<MySql>::builder(MySql::url()).table(&*name).open().await.unwrap();
}

#[tokio::test]
async fn a_schema_of_its_own_is_used() {
    let schema = table();
    let first = open::<Postgres>().await;
    first.pool().execute(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).await.unwrap();
    let open = || SqlStore::<Postgres>::builder(Postgres::url()).schema(&*schema).migrate().open();
    let store = open().await.unwrap();
    let id = id();
    assert!(begin(&store, &id).await.unwrap().is_some());
    assert!(begin(&open().await.unwrap(), &id).await.unwrap().is_none());
    assert!(format!("{store:?}").contains(&format!("{schema}.onlyonce_records")), "{store:?}");
}

#[tokio::test]
async fn a_wrong_isolation_level_of_a_given_pool_is_said() {
    let options: sqlx::postgres::PgConnectOptions = Postgres::url().parse().unwrap();
    let options = options.options([("default_transaction_isolation", "serializable")]);
    let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
    let error = SqlStore::<Postgres>::from_pool(pool).table(table()).migrate().open().await.unwrap_err();
    let said = error.to_string();
    assert!(said.contains("serializable") && said.contains("read committed"), "{said}");
}

#[tokio::test]
async fn a_read_only_user_is_told_what_it_needs() {
    // Once by its role, once by its connection.
    let (name, role) = (table(), table());
    let store = open_table::<Postgres>(&name).await;
    let make = format!("CREATE ROLE {role} LOGIN; GRANT SELECT ON {name}, {name}_migrations TO {role}");
    sqlx::raw_sql(AssertSqlSafe(make)).execute(store.pool()).await.unwrap();
    let options: sqlx::postgres::PgConnectOptions = Postgres::url().parse().unwrap();
    let weak = options.clone().username(&role);
    let frozen = options.options([("default_transaction_read_only", "on")]);
    for options in [weak, frozen] {
        let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
        let store = SqlStore::<Postgres>::from_pool(pool).table(&*name).open().await.unwrap();
        let error = begin(&store, &id()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
        assert!(error.source().unwrap().to_string().contains("may not write"), "{error:?}");
    }
    let clean = format!("REVOKE ALL ON {name}, {name}_migrations FROM {role}; DROP ROLE {role}");
    sqlx::raw_sql(AssertSqlSafe(clean)).execute(store.pool()).await.unwrap();
}

#[tokio::test]
async fn an_exhausted_pool_is_said() {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_millis(200))
        .connect(&Postgres::url())
        .await
        .unwrap();
    let store = SqlStore::<Postgres>::from_pool(pool.clone()).table(table()).migrate().open().await.unwrap();
    let held = pool.acquire().await.unwrap();
    let error = begin(&store, &id()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.source().unwrap().to_string().contains("max_connections"), "{error:?}");
    drop(held);
    assert!(begin(&store, &id()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_strict_store_refuses_a_database_that_may_lose_records() {
    let options: sqlx::postgres::PgConnectOptions = Postgres::url().parse().unwrap();
    let pool =
        PgPoolOptions::new().connect_with(options.options([("synchronous_commit", "off")])).await.unwrap();
    let builder = || SqlStore::<Postgres>::from_pool(pool.clone()).table(table()).migrate();
    builder().open().await.unwrap();
    let error = builder().strict().open().await.unwrap_err();
    assert!(matches!(error, OpenError::Strict(_)), "{error}");
}

#[tokio::test]
async fn secrets_are_not_shown() {
    let builder = SqlStore::<Postgres>::builder("postgres://user:hunter2@localhost/db");
    assert!(!format!("{builder:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_waiter_on_postgres_is_woken_by_a_message_and_not_by_looking() {
    let name = table();
    let store = Arc::new(open_table::<Postgres>(&name).await);
    let id = id();
    let attempt = begin(&*store, &id).await.unwrap().unwrap();
    let seen = store.get(&id).await.unwrap().unwrap().revision();
    // The first who waits starts the listener.
    store.changed(&id, seen, Duration::from_millis(700)).await;
    let waiter = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            store.changed(&id, seen, Duration::from_secs(60)).await;
            store.get(&id).await.unwrap().unwrap().revision()
        }
    });
    // Where messages are heard, the next look would be after two seconds.
    let awaited = format!("SELECT 1 FROM {name} WHERE awaited");
    while sqlx::query(AssertSqlSafe(awaited.clone())).fetch_optional(store.pool()).await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    store.settle(&id, &attempt, &completed("done")).await.unwrap();
    let after = tokio::time::timeout(Duration::from_millis(1500), waiter).await.expect("woken").unwrap();
    assert_ne!(after, seen);
}

#[tokio::test]
async fn a_damaged_record_fails_closed() {
    let name = table();
    let store = open_table::<Sqlite>(&name).await;
    let id = id();
    begin(&store, &id).await.unwrap().unwrap();
    store.pool().execute(AssertSqlSafe(format!("UPDATE {name} SET status = 9"))).await.unwrap();
    assert_eq!(store.get(&id).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(begin(&store, &id).await.unwrap_err().kind(), ErrorKind::Corrupt);
}
