//! Processes that die or stand still, each at one known place: scenarios 6 to 11 of the list in the design, by number, and a host
//! that dies with its transaction open. (`scenarios.rs` kills anywhere, and often.)
//!
//! The child is the test itself, started again. "Outside" is a table that is written past the record's own transaction.
#![cfg(all(unix, feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::time::Duration;

use common::process::{CHILD, Partner, block_on, child, runtime, say_and_wait};
use common::*;
use onlyonce_core::{Idempotency, OnLapse, Permit, Refusal, Settings};
use onlyonce_sql::{CrashPoint, InTransaction as _, SqlStore, Tx};
use onlyonce_testkit::NetFault;

macro_rules! on_servers {
    ($($test:ident,)+) => {
        mod mysql { $(#[test] fn $test() { super::$test::<onlyonce_sql::MySql>(concat!("mysql::", stringify!($test))); })+ }
        mod postgres { $(#[test] fn $test() { super::$test::<onlyonce_sql::Postgres>(concat!("postgres::", stringify!($test))); })+ }
    };
}

on_servers! {
    scenario_06_killed_after_the_begin_and_before_the_effect,
    scenario_07_killed_around_the_commit_in_the_same_database,
    scenario_08_killed_after_an_effect_outside,
    scenario_09_killed_inside_of_a_settlement,
    scenario_10_killed_after_the_settlement_and_before_the_response,
    scenario_11_a_holder_that_stood_still_past_its_lease_changes_nothing,
    a_host_that_dies_in_its_transaction_frees_its_key,
}

const LONG: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
/// The URL through a proxy, for a child.
const THROUGH: &str = "ONLYONCE_TEST_THROUGH";

/// The table, if this is the child.
fn task() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// In the child: the store. It waits for replies for as long as the test lasts, so that it does nothing else meanwhile.
async fn childs<DB: Effects>(table: &str) -> SqlStore<DB> {
    let url = std::env::var(THROUGH).unwrap_or_else(|_| DB::url());
    SqlStore::<DB>::builder(url).table(table).response_timeout(3 * LONG).open().await.unwrap()
}

async fn world<DB: Effects>() -> (String, SqlStore<DB>) {
    let table = table();
    let store = open_table::<DB>(&table).await;
    DB::make(store.pool(), &table).await;
    (table, store)
}

/// An engine whose leases are over soon, and whose callers wait for that.
fn leases<DB: Effects>(store: &SqlStore<DB>, on_lapse: OnLapse) -> Idempotency {
    let settings = Settings { lease: SECOND, wait: LONG, on_lapse, ..Settings::default() };
    Idempotency::builder(store.clone()).settings(settings).build().unwrap()
}

async fn outside<DB: Effects>(store: &SqlStore<DB>, table: &str) {
    DB::effect(&mut *store.pool().acquire().await.unwrap(), table, "k").await;
}

/// A call with an effect outside.
async fn pay<DB: Effects>(
    once: &Idempotency,
    store: &SqlStore<DB>,
    table: &str,
    by: &str,
) -> Result<String, No> {
    let (store, table, by) = (store.clone(), table.to_owned(), by.to_owned());
    once.call("pay", "k")
        .run(async move {
            outside(&store, &table).await;
            Ok(by)
        })
        .await
}

/// The same with its effect in the transaction of the record.
async fn pay_inside<DB: Effects>(once: &Idempotency, table: &str) -> Result<String, No> {
    let table = table.to_owned();
    once.call("pay", "k")
        .in_transaction(move |mut tx: Tx<DB>| async move {
            DB::effect(&mut tx, &table, "k").await;
            Ok(format!("paid {}", rand::random::<u64>()))
        })
        .await
}

fn same_transaction<DB: Effects>(store: &SqlStore<DB>) -> Idempotency {
    store.same_transaction().settings(Settings { wait: LONG, ..Settings::default() }).build().unwrap()
}

/// Starts the child, and waits until it is dead.
fn dies<DB: Effects>(test: &str, table: &str, point: Option<CrashPoint>) {
    let mut victim = child::<DB>(test, table);
    if let Some(point) = point {
        victim.env(CrashPoint::VARIABLE, point.name());
    }
    let died = victim.status().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&died),
        Some(6),
        "it did not die where it should"
    );
}

/// Nobody can know what the dead did, so nobody runs, however often it is asked.
async fn is_unknown_for_ever<DB: Effects>(store: &SqlStore<DB>, table: &str, effects: i64) {
    for _ in 0..2 {
        let held = pay(&leases(store, OnLapse::Hold), store, table, "again").await;
        assert!(matches!(held, Err(No::Refused(Refusal::Unknown { .. }))), "{held:?}");
    }
    assert_eq!(DB::count(store.pool(), table, "k").await, effects);
}

fn scenario_06_killed_after_the_begin_and_before_the_effect<DB: Effects>(test: &str) {
    if let Some(table) = task() {
        return block_on(async {
            let once = leases(&childs::<DB>(&table).await, OnLapse::Hold);
            let dead = async { std::process::abort() };
            let _: Result<String, No> = once.call("pay", "k").run(dead).await;
        });
    }
    let runtime = runtime();
    let (table, store) = runtime.block_on(world::<DB>());
    dies::<DB>(test, &table, None);
    runtime.block_on(async {
        is_unknown_for_ever(&store, &table, 0).await;
        // Who may run again, because the effect bears it, does so; and only once.
        let once = leases(&store, OnLapse::Rerun);
        for by in ["first", "second"] {
            assert_eq!(pay(&once, &store, &table, by).await.unwrap(), "first");
        }
        assert_eq!(DB::count(store.pool(), &table, "k").await, 1);
    });
}

fn scenario_07_killed_around_the_commit_in_the_same_database<DB: Effects>(test: &str) {
    if let Some(table) = task() {
        return block_on(async {
            let once = same_transaction(&childs::<DB>(&table).await);
            let _ = pay_inside::<DB>(&once, &table).await;
        });
    }
    let runtime = runtime();
    for (point, effects) in [(CrashPoint::Handled, 0), (CrashPoint::Committed, 1)] {
        let (table, store) = runtime.block_on(world::<DB>());
        dies::<DB>(test, &table, Some(point));
        runtime.block_on(async {
            assert_eq!(DB::count(store.pool(), &table, "k").await, effects, "{point:?}");
            let once = same_transaction(&store);
            let answer = pay_inside::<DB>(&once, &table).await.expect("run or replayed, and never unknown");
            assert_eq!(pay_inside::<DB>(&once, &table).await.unwrap(), answer);
            assert_eq!(DB::count(store.pool(), &table, "k").await, 1, "{point:?}");
        });
    }
}

fn scenario_08_killed_after_an_effect_outside<DB: Effects>(test: &str) {
    if let Some(table) = task() {
        return block_on(async {
            let store = childs::<DB>(&table).await;
            let once = leases(&store, OnLapse::Hold);
            let dead = async move {
                outside(&store, &table).await;
                std::process::abort()
            };
            let _: Result<String, No> = once.call("pay", "k").run(dead).await;
        });
    }
    let runtime = runtime();
    let (table, store) = runtime.block_on(world::<DB>());
    dies::<DB>(test, &table, None);
    runtime.block_on(is_unknown_for_ever(&store, &table, 1));
}

fn scenario_09_killed_inside_of_a_settlement<DB: Effects>(test: &str) {
    /// What is bound as the answer: the statement itself was sent before, when it was prepared.
    const ANSWER: &str = "said by the victim";
    if let Some(table) = task() {
        return block_on(async {
            let store = childs::<DB>(&table).await;
            let _ = pay(&leases(&store, OnLapse::Hold), &store, &table, ANSWER).await;
        });
    }
    let runtime = runtime();
    for fault in [NetFault::DropReply, NetFault::DropRequest] {
        let (table, store) = runtime.block_on(world::<DB>());
        let (proxy, through) = runtime.block_on(proxied::<DB>());
        proxy.when(ANSWER.as_bytes(), fault);
        let mut command = child::<DB>(test, &table);
        let mut victim = command.env(THROUGH, through).spawn().unwrap();
        let settling = async {
            while proxy.traffic().faults == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let settled = runtime.block_on(async { tokio::time::timeout(LONG, settling).await });
        victim.kill().unwrap();
        victim.wait().unwrap();
        settled.expect("it settles");
        runtime.block_on(async {
            if fault == NetFault::DropReply {
                let replayed = pay(&leases(&store, OnLapse::Hold), &store, &table, "again").await;
                assert_eq!(replayed.unwrap(), ANSWER);
                assert_eq!(DB::count(store.pool(), &table, "k").await, 1);
            } else {
                is_unknown_for_ever(&store, &table, 1).await;
            }
        });
    }
}

fn scenario_10_killed_after_the_settlement_and_before_the_response<DB: Effects>(test: &str) {
    if let Some(table) = task() {
        return block_on(async {
            let store = childs::<DB>(&table).await;
            pay(&leases(&store, OnLapse::Hold), &store, &table, "by the victim").await.unwrap();
            std::process::abort()
        });
    }
    let runtime = runtime();
    let (table, store) = runtime.block_on(world::<DB>());
    dies::<DB>(test, &table, None);
    runtime.block_on(async {
        let replayed = pay(&leases(&store, OnLapse::Hold), &store, &table, "again").await;
        assert_eq!(replayed.unwrap(), "by the victim");
        assert_eq!(DB::count(store.pool(), &table, "k").await, 1);
    });
}

/// A write to a resource that takes only what is newer than the last.
async fn fenced<DB: Effects>(store: &SqlStore<DB>, table: &str, permit: &Permit, by: &str) {
    let fence = permit.fence().0;
    let sql = format!("UPDATE effects_{table} SET name = '{by}', fence = {fence} WHERE fence < {fence}");
    DB::say_on(store.pool(), &sql).await;
}

fn scenario_11_a_holder_that_stood_still_past_its_lease_changes_nothing<DB: Effects>(test: &str) {
    if let Some(table) = task() {
        return block_on(async {
            let store = childs::<DB>(&table).await;
            let once = leases(&store, OnLapse::Rerun);
            let answer: Result<String, No> = once
                .call("pay", "k")
                .run_with(|permit| async move {
                    say_and_wait("HELD").await;
                    fenced(&store, &table, &permit, "zombie").await;
                    eprintln!("WRITTEN");
                    Ok("by the zombie".to_owned())
                })
                .await;
            eprintln!("ANSWER {}", answer.unwrap());
        });
    }
    let runtime = runtime();
    let (table, store) = runtime.block_on(world::<DB>());
    let resource = format!(
        "ALTER TABLE effects_{table} ADD fence BIGINT; INSERT INTO effects_{table} (name, fence) VALUES ('nobody', 0)"
    );
    runtime.block_on(DB::say_on(store.pool(), &resource));
    let mut holder = Partner::start(child::<DB>(test, &table));
    holder.hear("HELD");
    holder.stop();
    let (once, name) = (leases(&store, OnLapse::Rerun), table.clone());
    let writer = store.clone();
    let answer: Result<String, No> = runtime.block_on(once.call("pay", "k").run_with(|permit| async move {
        assert_eq!(permit.attempt(), 2);
        fenced(&writer, &name, &permit, "successor").await;
        Ok("by the successor".to_owned())
    }));
    assert_eq!(answer.unwrap(), "by the successor");
    holder.wake();
    holder.tell_to_go_on();
    holder.hear("WRITTEN");
    assert_eq!(holder.hear("ANSWER"), "by the successor", "its client gets what is stored");
    let by = |who| runtime.block_on(DB::count(store.pool(), &table, who));
    assert_eq!((by("successor"), by("zombie")), (1, 0));
}

/// The server ends a transaction that has been idle for too long: the host that holds it may have lost power.
fn a_host_that_dies_in_its_transaction_frees_its_key<DB: Effects>(test: &str) {
    if let Some(table) = task() {
        return block_on(async {
            let store = childs::<DB>(&table).await;
            let once = store.same_transaction().idle_timeout(SECOND).build().unwrap();
            let name = table.clone();
            let ended: Result<String, No> = once
                .call("pay", "k")
                .in_transaction(move |mut tx: Tx<DB>| async move {
                    DB::effect(&mut tx, &name, "k").await;
                    say_and_wait("HELD").await;
                    Ok("by the dead".to_owned())
                })
                .await;
            assert!(matches!(ended, Err(No::Refused(Refusal::Store(_)))), "{ended:?}");
            eprintln!("ANSWER {}", pay_inside::<DB>(&once, &table).await.unwrap());
        });
    }
    let runtime = runtime();
    let (table, store) = runtime.block_on(world::<DB>());
    let mut host = Partner::start(child::<DB>(test, &table));
    host.hear("HELD");
    host.stop();
    let answer = runtime.block_on(pay_inside::<DB>(&same_transaction(&store), &table));
    let answer = answer.expect("the key is free once the time of idle transactions is over");
    // Should the host come back after all, nothing of its own is committed.
    host.wake();
    host.tell_to_go_on();
    assert_eq!(host.hear("ANSWER"), answer);
    assert_eq!(runtime.block_on(DB::count(store.pool(), &table, "k")), 1);
}
