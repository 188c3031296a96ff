//! What may fail, fails: connections, commits, processes. One effect a key, and the key always resolves by itself.
#![cfg(all(unix, feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::time::Duration;

use common::process::{CHILD, block_on, child};
use common::*;
use onlyonce_core::{ErrorKind, Idempotency, Refusal, Settings, StateKind};
use onlyonce_sql::{CrashPoint, InTransaction as _, MySql, Postgres, SqlStore, Sqlite, Tx};
use onlyonce_testkit::NetFault;

const LONG: Duration = Duration::from_secs(60);

fn engine<DB: Effects>(store: &SqlStore<DB>) -> Idempotency {
    let settings = Settings { wait: LONG, ..Settings::default() };
    store.same_transaction().settings(settings).build().unwrap()
}

async fn pay<DB: Effects>(once: &Idempotency, table: &str, key: &str, size: usize) -> Result<String, No> {
    let (table, name) = (table.to_owned(), key.to_owned());
    once.call("pay", key)
        .in_transaction(move |mut tx: Tx<DB>| async move {
            DB::effect(&mut tx, &table, &name).await;
            Ok(format!("paid {} {}", rand::random::<u64>(), "x".repeat(size)))
        })
        .await
}

/// Retries, as a client does; never is it told that nobody knows.
async fn insist<DB: Effects>(once: &Idempotency, table: &str, key: &str, size: usize) -> String {
    for _ in 0..20 {
        match pay::<DB>(once, table, key, size).await {
            Ok(answer) => return answer,
            Err(No::Refused(Refusal::Store(error))) if error.kind() != ErrorKind::Rejected => {}
            Err(No::Refused(Refusal::InProgress { .. })) => {}
            Err(other) => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{key} did not resolve")
}

async fn world<DB: Effects>() -> (String, SqlStore<DB>) {
    let table = table();
    let store = open_table::<DB>(&table).await;
    DB::make(store.pool(), &table).await;
    (table, store)
}

/// How each driver says COMMIT. Not just the word: a transaction begins with READ COMMITTED.
const MYSQL_COMMIT: &[u8] = b"\x03COMMIT";
const POSTGRES_COMMIT: &[u8] = b"COMMIT\0";
const LOST_REQUEST: NetFault = NetFault::ResetRequest { after: 0 };
const LOST_REPLY: NetFault = NetFault::ResetReply { after: 0 };

async fn a_connection_that_dies_at_any_step<DB: Effects>(begin: &[u8], commit: &[u8]) {
    let (table, store) = world::<DB>().await;
    let (insert, effect) = (format!("INSERT INTO {table}"), format!("INSERT INTO effects_{table}"));
    let settle = format!("UPDATE {table}");
    let steps = [begin, insert.as_bytes(), effect.as_bytes(), settle.as_bytes(), commit];
    for (n, step) in steps.into_iter().enumerate() {
        let said = String::from_utf8_lossy(step);
        for (m, fault) in [LOST_REQUEST, LOST_REPLY, NetFault::HalfCloseReply].into_iter().enumerate() {
            let (proxy, through) = behind::<DB>(&table).await;
            let once = engine(&through);
            let key = format!("k{n}{m}");
            proxy.when(step, fault);
            let first = insist::<DB>(&once, &table, &key, 0).await;
            assert_eq!(proxy.traffic().faults, 1, "{said} was never sent");
            let again = insist::<DB>(&engine(&store), &table, &key, 0).await;
            assert_eq!(first, again, "{said} {fault:?}");
            assert_eq!(DB::count(store.pool(), &table, &key).await, 1, "{said} {fault:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_dies_at_any_step_on_mysql() {
    a_connection_that_dies_at_any_step::<MySql>(b"START TRANSACTION", MYSQL_COMMIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_dies_at_any_step_on_postgres() {
    a_connection_that_dies_at_any_step::<Postgres>(b"BEGIN", POSTGRES_COMMIT).await;
}

/// The reply to a COMMIT is lost: the caller gets its answer all the same, at the first try.
async fn a_lost_reply_to_a_commit_is_resolved_by_claiming_again<DB: Effects>(commit: &[u8]) {
    let (table, store) = world::<DB>().await;
    let (proxy, through) = behind::<DB>(&table).await;
    let once = engine(&through);
    for (key, size) in [("small", 0), ("large", 30_000)] {
        proxy.when(commit, LOST_REPLY);
        let first = pay::<DB>(&once, &table, key, size).await.expect("committed, and found out");
        let again = pay::<DB>(&engine(&store), &table, key, size).await.unwrap();
        assert_eq!(first, again);
        assert_eq!(DB::count(store.pool(), &table, key).await, 1);
    }
    assert_eq!(proxy.traffic().faults, 2);
    // The request is lost: nothing was committed, the caller is told so, and its retry runs.
    proxy.when(commit, LOST_REQUEST);
    let lost = pay::<DB>(&once, &table, "lost", 0).await;
    let Err(No::Refused(Refusal::Store(error))) = lost else { panic!("{lost:?}") };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert_eq!(DB::count(store.pool(), &table, "lost").await, 0);
    insist::<DB>(&once, &table, "lost", 0).await;
    assert_eq!(DB::count(store.pool(), &table, "lost").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_a_commit_on_mysql() {
    a_lost_reply_to_a_commit_is_resolved_by_claiming_again::<MySql>(MYSQL_COMMIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_a_commit_on_postgres() {
    a_lost_reply_to_a_commit_is_resolved_by_claiming_again::<Postgres>(POSTGRES_COMMIT).await;
}

/// The server ends the connection while the handler runs, and the handler does not notice.
async fn a_killed_connection<DB: Effects>(kill_itself: &'static str) {
    let (table, store) = world::<DB>().await;
    let once = engine(&store);
    let name = table.clone();
    let killed = once
        .call("pay", "k")
        .in_transaction(move |mut tx: Tx<DB>| async move {
            DB::effect(&mut tx, &name, "k").await;
            let killed = std::panic::AssertUnwindSafe(DB::say(&mut tx, kill_itself));
            let _ = futures_util::FutureExt::catch_unwind(killed).await;
            Ok("paid".to_owned())
        })
        .await;
    assert!(matches!(killed, Err(No::Refused(Refusal::Store(_)))), "{killed:?}");
    assert_eq!(DB::count(store.pool(), &table, "k").await, 0);
    insist::<DB>(&once, &table, "k", 0).await;
    assert_eq!(DB::count(store.pool(), &table, "k").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_connection_on_mysql() {
    a_killed_connection::<MySql>("KILL CONNECTION_ID()").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_connection_on_postgres() {
    a_killed_connection::<Postgres>("SELECT pg_terminate_backend(pg_backend_pid())").await;
}

/// Somebody stops the statement with which a call claims its key, and the connection lives on: it is as good as before, for the calls after
/// it and for whoever else uses its pool.
async fn a_stopped_claim_leaves_no_mark_on_its_connection<DB: Effects>(own: &str, busy: &str, stop: &str) {
    let (table, store) = world::<DB>().await;
    let one = SqlStore::<DB>::builder(DB::url()).table(&table).max_connections(1).open().await.unwrap();
    let connection = DB::number_on(one.pool(), own).await;
    let (first, second) = (engine(&store), engine(&one));
    let (tell, told) = tokio::sync::oneshot::channel::<()>();
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let name = table.clone();
    let holds = tokio::spawn(first.call("pay", "k").in_transaction(move |mut tx: Tx<DB>| async move {
        DB::effect(&mut tx, &name, "k").await;
        let _ = tell.send(());
        let _ = gone.await;
        Ok::<_, No>("paid".to_owned())
    }));
    told.await.unwrap();
    let waits = tokio::spawn(second.call("pay", "k").in_transaction(|_: Tx<DB>| async move {
        panic!("the first one was not over");
        #[allow(unreachable_code, reason = "its type")]
        Ok::<_, No>(String::new())
    }));
    let is_busy = busy.replace("{id}", &connection.to_string());
    for _ in 0..2 {
        while DB::number_on(store.pool(), &is_busy).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        DB::say_on(store.pool(), &stop.replace("{id}", &connection.to_string())).await;
    }
    let _ = go.send(());
    assert_eq!(holds.await.unwrap().unwrap(), "paid");
    assert_eq!(waits.await.unwrap().unwrap(), "paid");
    // The one connection of the pool, for everybody.
    DB::say_on(one.pool(), &format!("INSERT INTO effects_{table} (name) VALUES ('other')")).await;
    assert_eq!(DB::count(store.pool(), &table, "other").await, 1, "written by itself, and committed");
    pay::<DB>(&second, &table, "next", 0).await.unwrap();
    assert_eq!(DB::count(store.pool(), &table, "next").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_claim_on_mysql_leaves_no_mark_on_its_connection() {
    let own = "SELECT CAST(CONNECTION_ID() AS SIGNED)";
    let busy = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {id} AND COMMAND IN ('Query', 'Execute') AND INFO \
                LIKE '%INSERT%'";
    a_stopped_claim_leaves_no_mark_on_its_connection::<MySql>(own, busy, "KILL QUERY {id}").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_claim_on_postgres_leaves_no_mark_on_its_connection() {
    let own = "SELECT pg_backend_pid()::bigint";
    let busy = "SELECT COUNT(*) FROM pg_stat_activity WHERE pid = {id} AND wait_event_type = 'Lock'";
    let stop = "SELECT pg_cancel_backend({id})";
    a_stopped_claim_leaves_no_mark_on_its_connection::<Postgres>(own, busy, stop).await;
}

/// PostgreSQL and SQLite check a deferred constraint at COMMIT, and say no.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_the_server_does_not_take_is_left_out_and_what_was_done_stays_done() {
    let (table, store) = world::<MySql>().await;
    let too_large = store.max_answer_bytes().expect("a server that says how much it takes") + 1;
    let settings = Settings { max_answer: 2 * too_large, ..Settings::default() };
    let transactions = store.same_transaction().settings(settings.clone()).build().unwrap();
    let leases = Idempotency::builder(store.clone()).settings(settings).build().unwrap();
    for (key, once) in [("together", &transactions), ("leased", &leases)] {
        let pay = async || {
            let (store, table) = (store.clone(), table.clone());
            if once.has_leases() {
                let effect = async move {
                    MySql::effect(&mut *store.pool().acquire().await.unwrap(), &table, key).await;
                    Ok::<_, No>("x".repeat(too_large))
                };
                once.call("pay", key).run(effect).await
            } else {
                pay::<MySql>(once, &table, key, too_large).await
            }
        };
        assert!(pay().await.unwrap().len() >= too_large, "{key}: the first caller has its answer");
        for _ in 0..2 {
            let again = pay().await;
            assert!(matches!(again, Err(No::Refused(Refusal::Duplicate))), "{key}: {:?}", again.err());
        }
        assert_eq!(MySql::count(store.pool(), &table, key).await, 1, "{key}");
    }
}

/// As after a failover, while the pool still talks to the server that was demoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_meets_a_read_only_server_waits_for_one_that_is_not() {
    let table = table();
    let made = open_table::<Postgres>(&table).await;
    let pool = sqlx::pool::PoolOptions::<Postgres>::new().max_connections(1);
    let pool = pool.connect(&Postgres::url()).await.unwrap();
    let store = SqlStore::from_pool(pool.clone()).table(&*table).open().await.unwrap();
    let once = Idempotency::builder(store).build().unwrap();
    let demote = pool.clone();
    let effect = async move {
        sqlx::query("SET default_transaction_read_only = on").execute(&demote).await.unwrap();
        Ok::<_, No>("the receipt".to_owned())
    };
    let first = once.call("pay", "k").run(effect).await.unwrap();
    sqlx::query("SET default_transaction_read_only = off").execute(&pool).await.unwrap();
    let elsewhere = Idempotency::builder(made).build().unwrap();
    let id = elsewhere.call("pay", "k").record_id().unwrap();
    let completed = async {
        while elsewhere.outcome(&id).await.unwrap().map(|found| found.state.kind())
            != Some(StateKind::Completed)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, completed).await.expect("the end is written once that is possible");
    let again = elsewhere.call("pay", "k").run(async { Err::<String, _>(No::Accident) }).await;
    assert_eq!(again.unwrap(), first, "the answer was not left out");
}

async fn when_the_commit_fails_the_answer_does_not_go_out<DB: Effects>() {
    let (table, store) = world::<DB>().await;
    let parent = format!("parent_{table}");
    let make = format!(
        "CREATE TABLE {parent} (id BIGINT PRIMARY KEY); ALTER TABLE effects_{table} ADD parent BIGINT \
         REFERENCES {parent} DEFERRABLE INITIALLY DEFERRED"
    );
    DB::say_on(store.pool(), &make).await;
    let once = engine(&store);
    for (key, size) in [("small", 0), ("large", 30_000)] {
        let break_it = format!("INSERT INTO effects_{table} (name, parent) VALUES ('{key}', 7)");
        let broken = once
            .call("pay", key)
            .in_transaction(move |mut tx: Tx<DB>| async move {
                DB::say(&mut tx, &break_it).await;
                Ok("paid".repeat(size))
            })
            .await;
        let Err(No::Refused(Refusal::Store(error))) = broken else { panic!("{broken:?}") };
        assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
        let said = std::error::Error::source(&error).unwrap().to_string();
        assert!(said.contains("broke a rule of the database"), "{said}");
        nothing_is_left_and_the_retry_runs(&store, &once, &table, key).await;
    }
}

async fn nothing_is_left_and_the_retry_runs<DB: Effects>(
    store: &SqlStore<DB>,
    once: &Idempotency,
    table: &str,
    key: &str,
) {
    assert_eq!(DB::count(store.pool(), table, key).await, 0);
    let id = once.call("pay", key).record_id().unwrap();
    assert!(once.outcome(&id).await.unwrap().is_none(), "nothing is left of it");
    let answer = insist::<DB>(once, table, key, 0).await;
    assert_eq!(answer, insist::<DB>(once, table, key, 0).await);
    assert_eq!(DB::count(store.pool(), table, key).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_commit_fails_on_postgres_the_answer_does_not_go_out() {
    when_the_commit_fails_the_answer_does_not_go_out::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_commit_fails_on_sqlite_the_answer_does_not_go_out() {
    when_the_commit_fails_the_answer_does_not_go_out::<Sqlite>().await;
}

/// MySQL and MariaDB check nothing at COMMIT. There it fails if somebody ends the connection before it arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_commit_fails_on_mysql_the_answer_does_not_go_out() {
    let (table, store) = world::<MySql>().await;
    let (proxy, through) = behind::<MySql>(&table).await;
    let once = engine(&through);
    proxy.when(MYSQL_COMMIT, NetFault::DropRequest);
    let (tell, told) = tokio::sync::oneshot::channel::<i64>();
    let name = table.clone();
    let call = tokio::spawn(once.call("pay", "k").in_transaction(move |mut tx: Tx<MySql>| async move {
        MySql::effect(&mut tx, &name, "k").await;
        let id = sqlx::query_scalar("SELECT CAST(CONNECTION_ID() AS SIGNED)").fetch_one(&mut *tx).await;
        let _ = tell.send(id.unwrap());
        Ok::<_, No>("paid".to_owned())
    }));
    let connection = told.await.unwrap();
    let sent = async {
        while proxy.traffic().faults == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, sent).await.expect("COMMIT is sent");
    MySql::say_on(store.pool(), &format!("KILL {connection}")).await;
    let broken = tokio::time::timeout(LONG, call).await.expect("resolved in time").unwrap();
    let Err(No::Refused(Refusal::Store(error))) = broken else { panic!("{broken:?}") };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    nothing_is_left_and_the_retry_runs(&store, &once, &table, "k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_swallows_an_error_commits_nothing() {
    let (table, store) = world::<Postgres>().await;
    let once = engine(&store);
    let name = table.clone();
    let swallowed = once
        .call("pay", "k")
        .in_transaction(move |mut tx: Tx<Postgres>| async move {
            Postgres::effect(&mut tx, &name, "k").await;
            let _ = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
            Ok("paid".to_owned())
        })
        .await;
    assert!(matches!(swallowed, Err(No::Refused(Refusal::Store(_)))), "{swallowed:?}");
    assert_eq!(Postgres::count(store.pool(), &table, "k").await, 0);
    insist::<Postgres>(&once, &table, "k", 0).await;
}

/// With two rows that calls may lock in opposite order.
async fn two_rows<DB: Effects>() -> (String, SqlStore<DB>) {
    let (table, store) = world::<DB>().await;
    for name in ["a", "b"] {
        DB::say_on(store.pool(), &format!("INSERT INTO effects_{table} (name) VALUES ('row {name}')")).await;
    }
    DB::say_on(store.pool(), &format!("CREATE INDEX name_{table} ON effects_{table} (name)")).await;
    (table, store)
}

/// Two calls lock the same rows in opposite order: one gives way, is told so, and its retry runs.
async fn a_deadlock_of_handlers<DB: Effects>() {
    let (table, store) = two_rows::<DB>().await;
    let once = engine(&store);
    let both = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let cross = |key: &'static str, first: &'static str, second: &'static str| {
        let (table, both, once) = (table.clone(), both.clone(), once.clone());
        tokio::spawn(async move {
            for attempt in 0..10 {
                let (table, both) = (table.clone(), both.clone());
                let ran = once
                    .call("pay", key)
                    .in_transaction(move |mut tx: Tx<DB>| async move {
                        let lock = |row: &str| {
                            format!("UPDATE effects_{table} SET name = name WHERE name = 'row {row}'")
                        };
                        let (first, second) = (lock(first), lock(second));
                        DB::say(&mut tx, &first).await;
                        if attempt == 0 {
                            both.wait().await;
                        }
                        DB::say(&mut tx, &second).await;
                        DB::effect(&mut tx, &table, key).await;
                        Ok("paid".to_owned())
                    })
                    .await;
                match ran {
                    Ok(answer) => return (attempt, answer),
                    Err(No::Refused(Refusal::Store(_))) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
            panic!("{key} did not resolve")
        })
    };
    let (one, other) = (cross("k1", "a", "b"), cross("k2", "b", "a"));
    let attempts = one.await.unwrap().0 + other.await.unwrap().0;
    assert!(attempts >= 1, "there was no deadlock: nothing was shown");
    assert_eq!(DB::wrong(store.pool(), &table).await, 0);
}

/// A deadlock undoes the transaction, and the session goes on without one: what is written then must not be there twice, and an
/// answer without its record not go out.
async fn a_handler_that_goes_on_after_a_deadlock<DB: Effects>() {
    let (table, store) = two_rows::<DB>().await;
    let once = engine(&store);
    let both = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let met = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let cross = |key: &'static str, rows: [&'static str; 2]| {
        let (table, both, once, met) = (table.clone(), both.clone(), once.clone(), met.clone());
        tokio::spawn(async move {
            for attempt in 0..10 {
                let (table, both, met) = (table.clone(), both.clone(), met.clone());
                let ran = once
                    .call("pay", key)
                    .in_transaction(move |mut tx: Tx<DB>| async move {
                        let [first, second] = rows.map(|row| {
                            format!("UPDATE effects_{table} SET name = name WHERE name = 'row {row}'")
                        });
                        DB::try_say(&mut tx, &first).await.map_err(|_| No::Accident)?;
                        if attempt == 0 {
                            both.wait().await;
                        }
                        // As a helper does that tries a statement again after a deadlock.
                        if DB::try_say(&mut tx, &second).await.is_err() {
                            met.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                            let _ = DB::try_say(&mut tx, &second).await;
                        }
                        let effect = format!("INSERT INTO effects_{table} (name) VALUES ('{key}')");
                        let done = DB::try_say(&mut tx, &effect).await;
                        // Some tell of it, some do not.
                        if key == "k1" {
                            done.map_err(|_| No::Accident)?
                        }
                        Ok("paid".to_owned())
                    })
                    .await;
                match ran {
                    Ok(answer) => return answer,
                    Err(No::Accident | No::Refused(Refusal::Store(_))) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
            panic!("{key} did not resolve")
        })
    };
    let (one, other) = (cross("k1", ["a", "b"]), cross("k2", ["b", "a"]));
    one.await.unwrap();
    other.await.unwrap();
    assert!(met.load(std::sync::atomic::Ordering::SeqCst) >= 1, "there was no deadlock: nothing was shown");
    assert_eq!(DB::wrong(store.pool(), &table).await, 0);
    // Whoever uses the pool beside us can write as before.
    let pool = store.pool().options().get_max_connections();
    let mut all = Vec::new();
    for n in 0..pool {
        let mut connection = store.pool().acquire().await.unwrap();
        DB::say(&mut connection, &format!("INSERT INTO effects_{table} (name) VALUES ('own {n}')")).await;
        all.push(connection);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_goes_on_after_a_deadlock_on_mysql() {
    a_handler_that_goes_on_after_a_deadlock::<MySql>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_goes_on_after_a_deadlock_on_postgres() {
    a_handler_that_goes_on_after_a_deadlock::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_of_handlers_on_mysql() {
    a_deadlock_of_handlers::<MySql>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_of_handlers_on_postgres() {
    a_deadlock_of_handlers::<Postgres>().await;
}

/// The happy path costs no more round trips than the bare transaction, one for the claim and one to settle it.
async fn a_call_costs_round_trips<DB: Effects>(most: u64) {
    let (table, _) = world::<DB>().await;
    let (proxy, through) = behind::<DB>(&table).await;
    let once = engine(&through);
    for n in 0..5 {
        pay::<DB>(&once, &table, &format!("warm{n}"), 0).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = proxy.traffic().exchanges;
    for n in 0..10 {
        pay::<DB>(&once, &table, &format!("k{n}"), 0).await.unwrap();
        // The connection goes back to its pool meanwhile.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let each = (proxy.traffic().exchanges - before) / 10;
    // BEGIN, claim, the handler's own statement, settle, COMMIT, and what the pool does by itself.
    assert!((5..=most).contains(&each), "{each} round trips");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_costs_five_round_trips_and_the_pools_own_on_mysql() {
    let pool = sqlx::MySqlPool::connect(&MySql::url()).await.unwrap();
    let version: String = sqlx::query_scalar("SELECT VERSION()").fetch_one(&pool).await.unwrap();
    // The driver ends its own count of the transaction as the connection goes back. And MySQL proper can't bound the wait of one
    // statement that writes: one more puts the session's time back.
    let most = if version.contains("MariaDB") { 7 } else { 8 };
    a_call_costs_round_trips::<MySql>(most).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_costs_five_round_trips_and_the_pools_own_on_postgres() {
    a_call_costs_round_trips::<Postgres>(6).await;
}

/// The process dies at each named point; whoever comes next finishes.
fn a_process_that_dies<DB: Effects>(test: &str) {
    if let Ok(table) = std::env::var(CHILD) {
        block_on(async {
            let store = SqlStore::<DB>::builder(DB::url()).table(&*table).open().await.unwrap();
            let once = engine(&store);
            if std::env::var(CrashPoint::VARIABLE).is_ok_and(|point| point == CrashPoint::Refused.name()) {
                let refuse = once.call("pay", "refused").in_transaction(|mut tx: Tx<DB>| async move {
                    DB::effect(&mut tx, &table, "refused").await;
                    Err::<String, _>(No::SoldOut)
                });
                let _ = refuse.await;
            } else {
                let key = std::env::var(CrashPoint::VARIABLE).unwrap();
                let _ = pay::<DB>(&once, &table, &key, 0).await;
            }
        });
        return;
    }
    let (table, store) = block_on(world::<DB>());
    for point in CrashPoint::ALL {
        let mut victim = child::<DB>(test, &table);
        let died = victim.env(CrashPoint::VARIABLE, point.name()).status().unwrap();
        assert!(!died.success(), "it did not come to {point:?}");
        block_on(async {
            let fresh = SqlStore::<DB>::builder(DB::url()).table(&*table).open().await.unwrap();
            let answer = insist::<DB>(&engine(&fresh), &table, point.name(), 0).await;
            let again = insist::<DB>(&engine(&fresh), &table, point.name(), 0).await;
            assert_eq!(answer, again);
            assert_eq!(DB::count(fresh.pool(), &table, point.name()).await, 1, "{point:?}");
        });
    }
    drop(store);
}

#[test]
fn a_process_that_dies_at_each_point_on_mysql() {
    a_process_that_dies::<MySql>("a_process_that_dies_at_each_point_on_mysql");
}

#[test]
fn a_process_that_dies_at_each_point_on_postgres() {
    a_process_that_dies::<Postgres>("a_process_that_dies_at_each_point_on_postgres");
}

#[test]
fn a_process_that_dies_at_each_point_on_sqlite() {
    a_process_that_dies::<Sqlite>("a_process_that_dies_at_each_point_on_sqlite");
}

/// Four processes, a hundred keys, a hundred duplicates each.
fn four_processes<DB: Effects>(test: &str, keys: usize, duplicates: usize) {
    if let Ok(table) = std::env::var(CHILD) {
        block_on(async {
            let store = SqlStore::<DB>::builder(DB::url()).table(&*table).open().await.unwrap();
            let once = engine(&store);
            let callers: Vec<_> = (0..duplicates / 4)
                .map(|caller| {
                    let (once, table) = (once.clone(), table.clone());
                    tokio::spawn(async move {
                        for n in 0..keys {
                            // Each in an order of its own.
                            let key = format!("k{}", (n * 7 + caller * 13) % keys);
                            insist::<DB>(&once, &table, &key, 0).await;
                        }
                    })
                })
                .collect();
            for caller in callers {
                caller.await.unwrap();
            }
        });
        return;
    }
    let (table, store) = block_on(world::<DB>());
    let processes: Vec<_> = (0..4).map(|_| child::<DB>(test, &table).spawn().unwrap()).collect();
    for mut process in processes {
        assert!(process.wait().unwrap().success(), "a process did not get all its answers");
    }
    block_on(async {
        let fresh = SqlStore::<DB>::builder(DB::url()).table(&*table).open().await.unwrap();
        assert_eq!(DB::wrong(fresh.pool(), &table).await, 0, "a key has more than one effect");
        for n in 0..keys {
            assert_eq!(DB::count(fresh.pool(), &table, &format!("k{n}")).await, 1);
        }
        let counts = onlyonce_core::Inspect::count(&fresh).await.unwrap();
        assert_eq!(counts.get(&StateKind::Completed).copied(), Some(keys as u64), "{counts:?}");
    });
    drop(store);
}

#[test]
fn a_hundred_keys_by_a_hundred_duplicates_over_four_processes_on_mysql() {
    four_processes::<MySql>("a_hundred_keys_by_a_hundred_duplicates_over_four_processes_on_mysql", 100, 100);
}

#[test]
fn a_hundred_keys_by_a_hundred_duplicates_over_four_processes_on_postgres() {
    four_processes::<Postgres>(
        "a_hundred_keys_by_a_hundred_duplicates_over_four_processes_on_postgres",
        100,
        100,
    );
}

#[test]
fn twenty_keys_by_twenty_duplicates_over_four_processes_on_sqlite() {
    four_processes::<Sqlite>("twenty_keys_by_twenty_duplicates_over_four_processes_on_sqlite", 20, 20);
}
