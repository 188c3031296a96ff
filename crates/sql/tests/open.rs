//! Opening: what is wrong is said, and what to do about it.
#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use onlyonce_core::{ErrorKind, Inspect as _, Refusal, Store as _};
use onlyonce_sql::{InTransaction as _, MySql, OpenError, Postgres, SqlStore, Sqlite, Tx};
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
    an_older_schema_says_which_migration_is_missing,
    an_exhausted_pool_is_said,
    a_url_may_name_the_table,
    too_many_transactions_at_once_are_said,
    a_damaged_row_hides_no_other,
}

/// Each as its own kind of damage, so that they are the first and the oldest.
async fn a_damaged_row_hides_no_other<DB: Effects>() {
    let name = table();
    let store = open_table::<DB>(&name).await;
    let mut ids: Vec<_> = (0..6_u8).map(|n| onlyonce_core::RecordId::from_bytes([n; 32])).collect();
    for (n, id) in ids.iter().enumerate() {
        let attempt = begin(&store, id).await.unwrap().unwrap();
        let unknown = onlyonce_core::Verdict::Unknown(onlyonce_core::Answer("seen".into()));
        let how = onlyonce_core::Settlement { verdict: unknown, retain: Duration::from_secs(600) };
        store.settle(id, &attempt, &how).await.unwrap();
        // By the clock of the database they may be made in one microsecond.
        DB::say_on(store.pool(), &format!("UPDATE {name} SET created_at = {n} WHERE created_at > 100")).await;
    }
    let damages = ["status = 9", "began_over = 7", "attempts = -1", "hash_rules = 999"];
    for (n, damage) in damages.into_iter().enumerate() {
        DB::say_on(store.pool(), &format!("UPDATE {name} SET {damage} WHERE created_at = {n}")).await;
    }
    let whole = ids.split_off(damages.len());
    let mut listed = Vec::new();
    let mut cursor = None;
    for _ in 0..20 {
        let page = store.list(&onlyonce_core::Filter::default(), cursor.as_ref(), 1).await.unwrap();
        listed.extend(page.records.into_iter().map(|record| record.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, whole, "page by page, and to the end");
    for limit in [1, 2, 100] {
        let lapsed: Vec<_> = store.lapsed(limit).await.unwrap().into_iter().map(|record| record.id).collect();
        assert_eq!(lapsed, whole[..whole.len().min(limit as usize)], "at most {limit}");
    }
    let counted = store.count().await.unwrap();
    assert_eq!(counted.values().sum::<u64>(), 5, "what has no state is not counted: {counted:?}");
}

async fn a_missing_table_says_how_to_migrate<DB: Served>() {
    let error = SqlStore::<DB>::builder(DB::url()).table(table()).open().await.unwrap_err();
    assert!(matches!(error, OpenError::NotMigrated { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains(".migrate()") && said.contains("migrations/"), "{said}");
}

async fn migrating_is_safe_for_many_at_once_and_again<DB: Served>() {
    let name = table();
    let all: Vec<_> = (0..8)
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
        assert!(error.to_string().contains("lower-case"), "{error:?}");
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

async fn an_older_schema_says_which_migration_is_missing<DB: Effects>() {
    let name = table();
    let store = open_table::<DB>(&name).await;
    // As the release before the second migration left it.
    let on = if DB::NAME == "MySQL" { format!(" ON {name}") } else { String::new() };
    let clock = if DB::NAME == "SQLite" { format!("; DROP TABLE {name}_clock") } else { String::new() };
    let older = format!(
        "DELETE FROM {name}_migrations WHERE version >= 2; DROP INDEX {name}_open{on}; DROP INDEX {name}_key{on}{clock}"
    );
    DB::say_on(store.pool(), &older).await;
    let open = || SqlStore::<DB>::builder(DB::url()).table(&*name).open();
    let error = open().await.unwrap_err();
    assert!(matches!(error, OpenError::OlderSchema { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("0002_console.sql") && said.contains(".migrate()"), "{said}");
    open_table::<DB>(&name).await;
    open().await.unwrap();

    DB::say_on(store.pool(), &format!("INSERT INTO {name}_migrations (version) VALUES (99)")).await;
    let error = open().await.unwrap_err();
    assert!(matches!(error, OpenError::NewerSchema { .. }), "{error}");
}

/// A pool with one connection, for which one waits no longer than it takes to notice.
async fn narrow<DB: Served>() -> SqlStore<DB> {
    let name = table();
    open_table::<DB>(&name).await;
    let options = sqlx::pool::PoolOptions::<DB>::new().max_connections(1);
    let pool = options.acquire_timeout(Duration::from_secs(3)).connect(&DB::url()).await.unwrap();
    SqlStore::<DB>::from_pool(pool).table(&*name).open().await.unwrap()
}

async fn a_url_may_name_the_table<DB: Served>() {
    let (name, url) = (table(), DB::url());
    let more = if url.contains('?') { '&' } else { '?' };
    let named = |name: &str| SqlStore::<DB>::builder(format!("{url}{more}table={name}"));
    let store = named(&name).migrate().open().await.unwrap();
    let id = id();
    begin(&store, &id).await.unwrap();
    let same = SqlStore::<DB>::builder(&*url).table(&*name).open().await.unwrap();
    assert!(same.get(&id).await.unwrap().is_some());
    let error = named("No-Name").open().await.unwrap_err().to_string();
    assert!(error.contains("lower-case letters, digits and underscores"), "{error}");
}

async fn an_exhausted_pool_is_said<DB: Served>() {
    let store = narrow::<DB>().await;
    let held = store.pool().acquire().await.unwrap();
    let error = begin(&store, &id()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.source().unwrap().to_string().contains("max_connections"), "{error:?}");
    drop(held);
    assert!(begin(&store, &id()).await.unwrap().is_some());
}

async fn too_many_transactions_at_once_are_said<DB: Served>() {
    let once = narrow::<DB>().await.same_transaction().build().unwrap();
    let (begun, end) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (tell, until) = (Arc::clone(&begun), Arc::clone(&end));
    let first = tokio::spawn(once.call("pay", "first").in_transaction(move |_: Tx<DB>| async move {
        tell.notify_one();
        until.notified().await;
        Ok::<_, No>("paid".to_owned())
    }));
    begun.notified().await;
    let second =
        || once.call("pay", "second").in_transaction(|_: Tx<DB>| async { Ok::<_, No>("paid".to_owned()) });
    let refused = second().await;
    let Err(No::Refused(Refusal::Store(error))) = refused else { panic!("{refused:?}") };
    assert_eq!(error.kind(), ErrorKind::Busy, "{error:?}");
    assert!(error.source().unwrap().to_string().contains("max_connections"), "{error:?}");
    end.notify_one();
    first.await.unwrap().unwrap();
    assert_eq!(second().await.unwrap(), "paid");
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

/// Every statement of lease mode stands alone, and transactions say what they need: on MySQL any level will do.
#[tokio::test]
async fn any_isolation_level_of_a_given_pool_will_do_on_mysql() {
    let name = table();
    open_table::<MySql>(&name).await;
    for level in ["READ UNCOMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let pool = mysql_pool(format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}")).await;
        let store = SqlStore::<MySql>::from_pool(pool).table(&*name).open().await.unwrap();
        let once = store.same_transaction().build().unwrap();
        let id = id();
        let attempt = begin(&store, &id).await.unwrap().unwrap();
        assert!(begin(&store, &id).await.unwrap().is_none());
        store.settle(&id, &attempt, &completed("done")).await.unwrap();
        let seen = once.call("pay", level).in_transaction(|mut tx: Tx<MySql>| async move {
            let mine = "SELECT CAST(TRX_ISOLATION_LEVEL AS BINARY) FROM information_schema.innodb_trx \
                        WHERE TRX_MYSQL_THREAD_ID = CONNECTION_ID()";
            // The server looks for itself only so often.
            let level: Vec<u8> = loop {
                match sqlx::query_scalar(mine).fetch_optional(&mut *tx).await.unwrap() {
                    Some(level) => break level,
                    None => tokio::time::sleep(Duration::from_millis(150)).await,
                }
            };
            Ok::<_, No>(String::from_utf8(level).unwrap())
        });
        let seen = tokio::time::timeout(Duration::from_secs(60), seen).await.expect("the server looks");
        assert_eq!(seen.unwrap(), "READ COMMITTED", "{level}");
    }
}

async fn mysql_pool(first: String) -> sqlx::MySqlPool {
    let options = sqlx::mysql::MySqlPoolOptions::new().after_connect(move |connection, _| {
        let first = first.clone();
        Box::pin(async move { sqlx::raw_sql(AssertSqlSafe(first)).execute(connection).await.map(drop) })
    });
    options.connect(&MySql::url()).await.unwrap()
}

#[tokio::test]
async fn a_given_pool_that_does_not_commit_by_itself_is_refused_on_mysql() {
    let pool = mysql_pool("SET autocommit = 0".to_owned()).await;
    let error = SqlStore::<MySql>::from_pool(pool).table(table()).migrate().open().await.unwrap_err();
    assert!(error.to_string().contains("set autocommit to 1"), "{error}");
}

async fn a_database_that_is_down_is_told_from_one_that_is_busy<DB: Served>(scheme: &str) {
    let url = format!("{scheme}://user:hunter2@127.0.0.1:{}/shop", onlyonce_testkit::free_port());
    let error = SqlStore::<DB>::open(url).await.unwrap_err();
    assert!(matches!(error, OpenError::Connect(_)), "{error:?}");
    let said = format!("{error}: {}", error.source().unwrap());
    assert!(said.contains("is it running") && said.contains("refused"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[tokio::test]
async fn a_postgres_that_is_down_is_said() {
    a_database_that_is_down_is_told_from_one_that_is_busy::<Postgres>("postgres").await;
}

#[tokio::test]
async fn a_mysql_that_is_down_is_said() {
    a_database_that_is_down_is_told_from_one_that_is_busy::<MySql>("mysql").await;
}

#[tokio::test]
async fn a_file_of_sqlite_that_can_not_be_opened_is_said() {
    let error = SqlStore::<Sqlite>::open("sqlite:///nowhere/at/all.db").await.unwrap_err();
    assert!(error.source().unwrap().to_string().contains("unable to open"), "{error:?}");
}

/// Who may not even read is not told that the database was not reached.
async fn may_not_read<DB: Served>(pool: sqlx::Pool<DB>, name: &str) {
    let error = SqlStore::<DB>::from_pool(pool).table(name).open().await.unwrap_err();
    assert!(matches!(error, OpenError::Forbidden { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains(name) && said.contains("grant it SELECT, INSERT, UPDATE and DELETE"), "{said}");
}

/// It may be opened; what it can't do is said.
async fn may_not_write<DB: Served>(pool: sqlx::Pool<DB>, name: &str) {
    let store = SqlStore::<DB>::from_pool(pool).table(name).open().await.unwrap();
    let error = begin(&store, &id()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    assert!(error.source().unwrap().to_string().contains("may not write"), "{error:?}");
    let once = store.same_transaction().build().unwrap();
    let refused =
        once.call("pay", "k").in_transaction(|_: Tx<DB>| async { Ok::<_, No>(String::new()) }).await;
    let Err(No::Refused(Refusal::Store(error))) = refused else { panic!("{refused:?}") };
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    assert!(error.source().unwrap().to_string().contains("may not write"), "{error:?}");
}

#[tokio::test]
async fn a_read_only_user_of_postgres_is_told_what_it_needs() {
    // Once by its role, once by its connection.
    let (name, role) = (table(), table());
    let store = open_table::<Postgres>(&name).await;
    Postgres::say_on(store.pool(), &format!("CREATE ROLE {role} LOGIN")).await;
    let options: sqlx::postgres::PgConnectOptions = Postgres::url().parse().unwrap();
    let weak = options.clone().username(&role);
    let pool = PgPoolOptions::new().connect_with(weak.clone()).await.unwrap();
    may_not_read::<Postgres>(pool, &name).await;
    let grant = format!("GRANT SELECT ON {name}, {name}_migrations TO {role}");
    Postgres::say_on(store.pool(), &grant).await;
    let frozen = options.options([("default_transaction_read_only", "on")]);
    for options in [weak, frozen] {
        may_not_write::<Postgres>(PgPoolOptions::new().connect_with(options).await.unwrap(), &name).await;
    }
    let clean = format!("REVOKE ALL ON {name}, {name}_migrations FROM {role}; DROP ROLE {role}");
    Postgres::say_on(store.pool(), &clean).await;
}

#[tokio::test]
async fn a_read_only_user_of_mysql_is_told_what_it_needs() {
    let name = table();
    let user = format!("u{:016x}", rand::random::<u64>());
    let store = open_table::<MySql>(&name).await;
    let grant = |table: &str| format!("GRANT SELECT ON {table} TO {user}@'%'");
    let make = format!("CREATE USER {user}@'%' IDENTIFIED BY 'weak'; {}", grant(&name));
    MySql::say_on(store.pool(), &make).await;
    let options: sqlx::mysql::MySqlConnectOptions = MySql::url().parse().unwrap();
    let weak = sqlx::MySqlPool::connect_with(options.username(&user).password("weak")).await.unwrap();
    may_not_read::<MySql>(weak.clone(), &name).await;
    MySql::say_on(store.pool(), &grant(&format!("{name}_migrations"))).await;
    may_not_write::<MySql>(weak, &name).await;
    let frozen = mysql_pool("SET SESSION TRANSACTION READ ONLY".to_owned()).await;
    may_not_write::<MySql>(frozen, &name).await;
    MySql::say_on(store.pool(), &format!("DROP USER {user}@'%'")).await;
}

#[tokio::test]
async fn a_file_of_sqlite_that_may_not_be_written_is_said() {
    let name = table();
    let _store = open_table::<Sqlite>(&name).await;
    let options: sqlx::sqlite::SqliteConnectOptions = Sqlite::url().parse().unwrap();
    let pool = sqlx::SqlitePool::connect_with(options.read_only(true)).await.unwrap();
    may_not_write::<Sqlite>(pool, &name).await;
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
