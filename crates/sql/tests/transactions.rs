//! The record commits with the effect: one effect a key, and the key always resolves by itself.
#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::*;
use onlyonce_core::{
    AttemptId, Begin, Fence, Idempotency, RecordId, Refusal, Settings, Settlement, StateKind, Store as _,
    Verdict,
};
use onlyonce_sql::{InTransaction as _, NoTx, SqlStore, Tx};
use tokio::sync::Notify;

on_each! {
    the_record_commits_with_the_effect,
    a_business_refusal_is_kept_and_what_it_did_is_rolled_back,
    a_system_error_rolls_all_back_and_the_retry_runs,
    a_panic_rolls_all_back_and_the_retry_runs,
    two_hundred_concurrent_duplicates_have_one_effect,
    a_duplicate_in_flight_that_does_not_wait_is_told_so,
    another_payload_is_refused_in_flight_and_after,
    many_wait_while_the_owner_rolls_back,
    blocked_duplicates_do_not_drain_the_pool,
    a_tx_that_outlives_its_handler_commits_nothing,
    a_tx_may_be_taken_again_and_need_not_be_taken,
    a_handler_that_rolls_back_by_itself_gets_no_answer_out,
    a_handler_that_commits_by_itself_has_one_effect_and_its_answer,
    a_handler_that_commits_by_itself_and_fails_is_never_run_again,
    a_handler_that_commits_by_itself_and_refuses_is_kept_to_what_it_said,
    a_refusal_that_another_attempt_overtook_is_not_told_as_the_answer,
    a_savepoint_of_the_handler_is_its_own,
    a_savepoint_that_is_left_open_is_undone_and_the_rest_commits,
    a_savepoint_that_is_stopped_half_way_leaves_no_transaction_behind,
    duplicates_of_a_call_that_can_not_claim_fail_with_it_and_not_one_after_the_other,
    duplicates_of_a_key_that_is_held_elsewhere_wait_together,
    a_retry_is_not_judged_by_another_payload_that_never_ran,
    a_caller_who_goes_away_stops_nothing_and_leaves_no_transaction,
    a_large_answer_is_kept_byte_for_byte,
    a_record_that_was_released_under_a_lease_is_taken_in_the_transaction,
    an_expired_record_is_taken_in_the_transaction,
    a_drain_waits_for_transactions,
    over_long_keys_are_refused_before_anything_is_asked,
}

struct World<DB: Effects> {
    table: String,
    store: SqlStore<DB>,
    once: Idempotency,
}

fn waiting(wait: Duration) -> Settings {
    Settings { wait, ..Settings::default() }
}

const LONG: Duration = Duration::from_secs(60);

impl<DB: Effects> World<DB> {
    async fn new(settings: Settings) -> Self {
        let table = table();
        let store = open_table::<DB>(&table).await;
        DB::make(store.pool(), &table).await;
        let once = store.same_transaction().settings(settings).build().unwrap();
        Self { table, store, once }
    }

    /// The same records, through a pool and an engine of its own: as good as another process.
    async fn elsewhere(&self, settings: Settings) -> Idempotency {
        open_table::<DB>(&self.table).await.same_transaction().settings(settings).build().unwrap()
    }

    /// A handler that commits its effect by itself, and then says no.
    async fn commits_early_and_says(&self, no: No) -> Result<String, No> {
        let table = self.table.clone();
        let call = self.once.call("pay", "k").in_transaction(move |mut tx: Tx<DB>| async move {
            DB::effect(&mut tx, &table, "k").await;
            DB::say(&mut tx, "COMMIT").await;
            Err(no)
        });
        call.await
    }

    async fn effects(&self, key: &str) -> i64 {
        DB::count(self.store.pool(), &self.table, key).await
    }

    /// A record that was begun and released under a lease, as an earlier failure leaves it.
    async fn release(&self, key: &str) -> (RecordId, Fence) {
        let id = self.once.call("pay", key).record_id().unwrap();
        let claim = claim();
        let Begin::Acquired { fence, .. } = self.store.begin(&id, &claim).await.unwrap() else {
            panic!("not acquired")
        };
        let attempt = AttemptId { owner: claim.owner, fence: Some(fence) };
        let released = Settlement { verdict: Verdict::Released, retain: LONG };
        self.store.settle(&id, &attempt, &released).await.unwrap();
        (id, fence)
    }

    /// A call that has its effect and answers.
    async fn pay(&self, once: &Idempotency, key: &str) -> Result<String, No> {
        let (table, name) = (self.table.clone(), key.to_owned());
        once.call("pay", key)
            .in_transaction(move |mut tx: Tx<DB>| async move {
                DB::effect(&mut tx, &table, &name).await;
                Ok(format!("paid {}", rand::random::<u64>()))
            })
            .await
    }
}

async fn the_record_commits_with_the_effect<DB: Effects>() {
    let world = World::<DB>::new(Settings::default()).await;
    let first = world.pay(&world.once, "k").await.unwrap();
    let again = world.pay(&world.once, "k").await.unwrap();
    let elsewhere = world.pay(&world.elsewhere(Settings::default()).await, "k").await.unwrap();
    assert_eq!([&again, &elsewhere], [&first, &first]);
    assert_eq!(world.effects("k").await, 1);
    let id = world.once.call("pay", "k").record_id().unwrap();
    assert_eq!(world.once.outcome(&id).await.unwrap().unwrap().state.kind(), StateKind::Completed);
}

async fn a_business_refusal_is_kept_and_what_it_did_is_rolled_back<DB: Effects>() {
    let world = World::<DB>::new(Settings::default()).await;
    let runs = Arc::new(AtomicU32::new(0));
    for _ in 0..3 {
        let (table, runs) = (world.table.clone(), Arc::clone(&runs));
        let refused = world
            .once
            .call("buy", "k")
            .in_transaction(move |mut tx: Tx<DB>| async move {
                runs.fetch_add(1, Ordering::Relaxed);
                DB::effect(&mut tx, &table, "k").await;
                Err::<String, _>(No::SoldOut)
            })
            .await;
        assert!(matches!(refused, Err(No::SoldOut)), "{refused:?}");
    }
    assert_eq!((runs.load(Ordering::Relaxed), world.effects("k").await), (1, 0));
}

async fn a_system_error_rolls_all_back_and_the_retry_runs<DB: Effects>() {
    let world = World::<DB>::new(Settings::default()).await;
    let table = world.table.clone();
    let failed = world
        .once
        .call("pay", "k")
        .in_transaction(move |mut tx: Tx<DB>| async move {
            DB::effect(&mut tx, &table, "k").await;
            Err::<String, _>(No::Accident)
        })
        .await;
    assert!(matches!(failed, Err(No::Accident)), "{failed:?}");
    assert_eq!(world.effects("k").await, 0);
    world.pay(&world.once, "k").await.unwrap();
    assert_eq!(world.effects("k").await, 1);
}

async fn a_panic_rolls_all_back_and_the_retry_runs<DB: Effects>() {
    let world = World::<DB>::new(waiting(LONG)).await;
    let table = world.table.clone();
    let failed = world
        .once
        .call("pay", "k")
        .in_transaction(move |mut tx: Tx<DB>| async move {
            DB::effect(&mut tx, &table, "k").await;
            if !table.is_empty() {
                panic!("the handler's own");
            }
            Ok::<String, No>(String::new())
        })
        .await;
    assert!(matches!(failed, Err(No::Refused(Refusal::Store(_)))), "never unknown: {failed:?}");
    world.pay(&world.once, "k").await.unwrap();
    assert_eq!(world.effects("k").await, 1);
}

async fn two_hundred_concurrent_duplicates_have_one_effect<DB: Effects>() {
    let world = Arc::new(World::<DB>::new(waiting(LONG)).await);
    let other = world.elsewhere(waiting(LONG)).await;
    let calls: Vec<_> = (0..200)
        .map(|n| {
            let (world, once) =
                (Arc::clone(&world), if n % 2 == 0 { world.once.clone() } else { other.clone() });
            tokio::spawn(async move { world.pay(&once, "k").await })
        })
        .collect();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap().unwrap());
    }
    answers.dedup();
    assert_eq!(answers.len(), 1);
    assert_eq!(world.effects("k").await, 1);
}

/// A call that holds its transaction until it is told to end.
fn hold<DB: Effects>(
    world: &World<DB>,
    key: &str,
    payload: u32,
) -> (tokio::task::JoinHandle<Result<String, No>>, Arc<Notify>, Arc<Notify>) {
    let (begun, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (table, name, tell, until) =
        (world.table.clone(), key.to_owned(), Arc::clone(&begun), Arc::clone(&end));
    let call = world.once.call("pay", key).input(&payload);
    let call = tokio::spawn(call.in_transaction(move |mut tx: Tx<DB>| async move {
        DB::effect(&mut tx, &table, &name).await;
        tell.notify_one();
        until.notified().await;
        Ok("paid".to_owned())
    }));
    (call, begun, end)
}

async fn a_duplicate_in_flight_that_does_not_wait_is_told_so<DB: Effects>() {
    let world = World::<DB>::new(Settings::default()).await;
    let (call, begun, end) = hold(&world, "k", 0);
    begun.notified().await;
    let impatient = async |once: &Idempotency| {
        let ran =
            once.call("pay", "k").input(&0).in_transaction(|_: Tx<DB>| async { Ok("ran".to_owned()) }).await;
        assert!(matches!(ran, Err(No::Refused(Refusal::InProgress { .. }))), "{ran:?}");
    };
    impatient(&world.once).await;
    // SQLite has one writer at a time: another process waits for any transaction, not only for this key.
    if <DB as sqlx::Database>::NAME != "SQLite" {
        impatient(&world.elsewhere(Settings::default()).await).await;
    }
    end.notify_one();
    assert_eq!(call.await.unwrap().unwrap(), "paid");
    assert_eq!(world.effects("k").await, 1);
}

async fn another_payload_is_refused_in_flight_and_after<DB: Effects>() {
    let world = World::<DB>::new(waiting(LONG)).await;
    let (call, begun, end) = hold(&world, "k", 1);
    begun.notified().await;
    let other = async |once: &Idempotency| {
        let ran =
            once.call("pay", "k").input(&2).in_transaction(|_: Tx<DB>| async { Ok("ran".to_owned()) }).await;
        assert!(matches!(ran, Err(No::Refused(Refusal::Mismatch))), "{ran:?}");
    };
    other(&world.once).await;
    end.notify_one();
    call.await.unwrap().unwrap();
    other(&world.once).await;
    other(&world.elsewhere(Settings::default()).await).await;
}

async fn many_wait_while_the_owner_rolls_back<DB: Effects>() {
    let world = Arc::new(World::<DB>::new(waiting(LONG)).await);
    for round in 0..3 {
        let key = format!("k{round}");
        let begun = Arc::new(Notify::new());
        let (table, name, tell) = (world.table.clone(), key.clone(), Arc::clone(&begun));
        let owner = tokio::spawn(world.once.call("pay", key.as_str()).in_transaction(
            move |mut tx: Tx<DB>| async move {
                DB::effect(&mut tx, &table, &name).await;
                tell.notify_one();
                tokio::time::sleep(Duration::from_millis(300)).await;
                Err::<String, _>(No::Accident)
            },
        ));
        begun.notified().await;
        let mut waiters = Vec::new();
        for _ in 0..6 {
            let once = world.elsewhere(waiting(LONG)).await;
            for _ in 0..3 {
                let (world, once, key) = (Arc::clone(&world), once.clone(), key.clone());
                waiters.push(tokio::spawn(async move { world.pay(&once, &key).await }));
            }
        }
        assert!(matches!(owner.await.unwrap(), Err(No::Accident)));
        let mut answers = Vec::new();
        for waiter in waiters {
            answers.push(waiter.await.unwrap().unwrap());
        }
        answers.dedup();
        assert_eq!(answers.len(), 1, "one of them ran, the others got its answer");
        assert_eq!(world.effects(&key).await, 1);
    }
}

async fn blocked_duplicates_do_not_drain_the_pool<DB: Effects>() {
    let world = Arc::new(World::<DB>::new(waiting(LONG)).await);
    let store =
        SqlStore::<DB>::builder(DB::url()).table(&*world.table).max_connections(3).open().await.unwrap();
    let once = store.same_transaction().settings(waiting(LONG)).build().unwrap();
    let (world, once) = (world, once);
    let (begun, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, until) = (Arc::clone(&begun), Arc::clone(&end));
    let owner = tokio::spawn(once.call("pay", "slow").in_transaction(move |tx: Tx<DB>| async move {
        tell.notify_one();
        until.notified().await;
        drop(tx);
        Ok::<_, No>("slow".to_owned())
    }));
    begun.notified().await;
    let duplicates: Vec<_> = (0..50)
        .map(|_| {
            let call = once.call("pay", "slow");
            tokio::spawn(call.in_transaction(|_: Tx<DB>| async { Ok::<_, No>("ran twice".to_owned()) }))
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Reading needs a connection; on the servers so does another key, which is not held up.
    let id = once.call("pay", "other").record_id().unwrap();
    tokio::time::timeout(LONG, store.get(&id)).await.expect("the pool has a connection left").unwrap();
    if <DB as sqlx::Database>::NAME != "SQLite" {
        tokio::time::timeout(LONG, world.pay(&once, "other")).await.expect("another key runs").unwrap();
    }
    end.notify_one();
    assert_eq!(owner.await.unwrap().unwrap(), "slow");
    for duplicate in duplicates {
        assert_eq!(duplicate.await.unwrap().unwrap(), "slow");
    }
}

async fn a_tx_that_outlives_its_handler_commits_nothing<DB: Effects>() {
    let world = World::<DB>::new(waiting(LONG)).await;
    let (table, leaked) = (world.table.clone(), Arc::new(tokio::sync::Mutex::new(None)));
    let keep = Arc::clone(&leaked);
    let ran = world
        .once
        .call("pay", "k")
        .in_transaction(move |mut tx: Tx<DB>| async move {
            DB::effect(&mut tx, &table, "k").await;
            *keep.lock().await = Some(tx);
            Ok("paid".to_owned())
        })
        .await;
    let Err(No::Refused(Refusal::Store(error))) = ran else { panic!("{ran:?}") };
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("outlived"), "{error:?}");
    drop(leaked.lock().await.take());
    world.pay(&world.once, "k").await.unwrap();
    assert_eq!(world.effects("k").await, 1);
}

async fn a_tx_may_be_taken_again_and_need_not_be_taken<DB: Effects>() {
    let world = World::<DB>::new(Settings::default()).await;
    let table = world.table.clone();
    let ran: Result<String, No> = world
        .once
        .call("pay", "k")
        .run_detached_with(move |permit| async move {
            let mut tx = Tx::<DB>::of(&permit).unwrap();
            assert_eq!(Tx::<DB>::of(&permit).unwrap_err(), NoTx::Taken);
            DB::effect(&mut tx, &table, "k").await;
            drop(tx);
            let mut tx = Tx::<DB>::of(&permit).unwrap();
            DB::effect(&mut tx, &table, "k2").await;
            Ok("paid".to_owned())
        })
        .await;
    assert_eq!(ran.unwrap(), "paid");
    assert_eq!((world.effects("k").await, world.effects("k2").await), (1, 1));
    let never: Result<String, No> =
        world.once.call("pay", "never").run(async { Ok("paid".to_owned()) }).await;
    assert_eq!(never.unwrap(), "paid");
    let again: Result<String, No> =
        world.once.call("pay", "never").run(async { Ok("twice".to_owned()) }).await;
    assert_eq!(again.unwrap(), "paid");
}

async fn a_handler_that_rolls_back_by_itself_gets_no_answer_out<DB: Effects>() {
    let world = World::<DB>::new(Settings::default()).await;
    let ran = world
        .once
        .call("pay", "k")
        .in_transaction(|mut tx: Tx<DB>| async move {
            DB::say(&mut tx, "ROLLBACK").await;
            Ok("paid".to_owned())
        })
        .await;
    assert!(matches!(ran, Err(No::Refused(Refusal::Store(_)))), "{ran:?}");
    every_connection_is_free(&world.store).await;
    world.pay(&world.once, "k").await.unwrap();
    assert_eq!(world.effects("k").await, 1);
}

/// The claim commits early, together with the effect; the answer follows it.
async fn a_handler_that_commits_by_itself_has_one_effect_and_its_answer<DB: Effects>() {
    let world = World::<DB>::new(waiting(LONG)).await;
    let other = world.elsewhere(waiting(LONG)).await;
    for (key, then) in [("commit", "COMMIT"), ("begin", "COMMIT; BEGIN"), ("twice", "COMMIT; BEGIN; COMMIT")]
    {
        let table = world.table.clone();
        let ran = world
            .once
            .call("pay", key)
            .in_transaction(move |mut tx: Tx<DB>| async move {
                DB::effect(&mut tx, &table, key).await;
                DB::say(&mut tx, then).await;
                Ok::<_, No>("paid".to_owned())
            })
            .await;
        assert_eq!(ran.unwrap(), "paid", "{then}");
        for once in [&world.once, &other] {
            assert_eq!(world.pay(once, key).await.unwrap(), "paid", "{then}");
        }
        assert_eq!(world.effects(key).await, 1, "{then}");
    }
    every_connection_is_free(&world.store).await;
}

/// What was committed stays, and nobody knows what else the handler did: the record is judged by its lease.
async fn a_handler_that_commits_by_itself_and_fails_is_never_run_again<DB: Effects>() {
    let second = Duration::from_secs(1);
    let settings = Settings { lease: second, max_run: second, ..Settings::default() };
    let world = World::<DB>::new(settings).await;
    let failed = world.commits_early_and_says(No::Accident).await;
    assert!(matches!(failed, Err(No::Accident)), "{failed:?}");
    let held = async {
        loop {
            match world.pay(&world.once, "k").await {
                Err(No::Refused(Refusal::InProgress { .. })) => tokio::time::sleep(second / 10).await,
                other => return other,
            }
        }
    };
    let held = tokio::time::timeout(LONG, held).await.expect("its lease ends");
    assert!(matches!(held, Err(No::Refused(Refusal::Unknown { .. }))), "{held:?}");
    assert_eq!(world.effects("k").await, 1);
}

async fn a_handler_that_commits_by_itself_and_refuses_is_kept_to_what_it_said<DB: Effects>() {
    let world = World::<DB>::new(waiting(LONG)).await;
    let refused = world.commits_early_and_says(No::SoldOut).await;
    assert!(matches!(refused, Err(No::SoldOut)), "{refused:?}");
    for once in [&world.once, &world.elsewhere(waiting(LONG)).await] {
        let again = world.pay(once, "k").await;
        assert!(matches!(again, Err(No::SoldOut)), "{again:?}");
    }
    assert_eq!(world.effects("k").await, 1);
    every_connection_is_free(&world.store).await;
}

/// Its end would be taken for the commit, and an answer go out for what is not committed.
async fn a_savepoint_that_is_left_open_is_undone_and_the_rest_commits<DB: Effects>() {
    let world = World::<DB>::new(waiting(LONG)).await;
    for (key, fails) in [("kept", false), ("failed", true)] {
        let table = world.table.clone();
        let ran = world
            .once
            .call("pay", key)
            .in_transaction(move |mut tx: Tx<DB>| async move {
                DB::effect(&mut tx, &table, key).await;
                let mut inner = sqlx::Connection::begin(&mut *tx).await.unwrap();
                DB::effect(&mut inner, &table, "undone").await;
                std::mem::forget(inner);
                if fails { Err(No::Accident) } else { Ok("paid".to_owned()) }
            })
            .await;
        assert_eq!(ran.is_err(), fails, "{ran:?}");
        every_connection_is_free(&world.store).await;
    }
    assert_eq!(world.pay(&world.once, "kept").await.unwrap(), "paid");
    let counts = (world.effects("kept").await, world.effects("failed").await, world.effects("undone").await);
    assert_eq!(counts, (1, 0, 0));
}

/// The driver may undo more than the savepoint then; but the key resolves, and the connection can be used.
async fn a_savepoint_that_is_stopped_half_way_leaves_no_transaction_behind<DB: Effects>() {
    let world = World::<DB>::new(waiting(LONG)).await;
    for n in 0..60_u64 {
        let (key, name, table) = (format!("k{n}"), format!("k{n}"), world.table.clone());
        let ran = world.once.call("pay", key.clone()).in_transaction(move |mut tx: Tx<DB>| async move {
            DB::effect(&mut tx, &table, &name).await;
            let _ = tokio::time::timeout(Duration::from_micros(n * 15), async {
                let mut inner = sqlx::Connection::begin(&mut *tx).await?;
                DB::try_say(&mut inner, &format!("INSERT INTO effects_{table} (name) VALUES ('inner')"))
                    .await?;
                inner.commit().await
            })
            .await;
            Ok::<_, No>("paid".to_owned())
        });
        match tokio::time::timeout(LONG, ran).await.unwrap() {
            Ok(answer) => assert_eq!(answer, "paid"),
            Err(No::Refused(Refusal::Store(_))) => {
                world.pay(&world.once, &key).await.unwrap();
            }
            Err(other) => panic!("{other:?}"),
        }
        assert_eq!(world.effects(&key).await, 1, "{key}");
    }
    every_connection_is_free(&world.store).await;
}

async fn duplicates_of_a_call_that_can_not_claim_fail_with_it_and_not_one_after_the_other<DB: Effects>() {
    let world = World::<DB>::new(Settings::default()).await;
    let patience = Duration::from_secs(2);
    let options = sqlx::pool::PoolOptions::<DB>::new().max_connections(1).acquire_timeout(patience);
    let pool = options.connect(&DB::url()).await.unwrap();
    let store = SqlStore::<DB>::from_pool(pool.clone()).table(&*world.table).open().await.unwrap();
    let once = store.same_transaction().settings(waiting(Duration::ZERO)).build().unwrap();
    let taken = pool.acquire().await.unwrap();
    let duplicates = (0..10).map(|_| world.pay(&once, "k"));
    let all = futures_util::future::join_all(duplicates);
    // One after the other they would take twenty seconds, and as long again for the place of the first.
    let all = tokio::time::timeout(patience * 5, all).await.expect("they fail together");
    for failed in all {
        assert!(matches!(failed, Err(No::Refused(Refusal::Store(_)))), "{failed:?}");
    }
    drop(taken);
    world.pay(&once, "k").await.unwrap();
    assert_eq!(world.effects("k").await, 1);
}

async fn duplicates_of_a_key_that_is_held_elsewhere_wait_together<DB: Effects>() {
    let world = World::<DB>::new(waiting(Duration::ZERO)).await;
    let other = world.elsewhere(waiting(LONG)).await;
    let (begun, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (table, told, ended) = (world.table.clone(), Arc::clone(&begun), Arc::clone(&end));
    let first = tokio::spawn(other.call("pay", "k").in_transaction(move |mut tx: Tx<DB>| async move {
        DB::effect(&mut tx, &table, "k").await;
        told.notify_one();
        ended.notified().await;
        Ok::<_, No>("paid".to_owned())
    }));
    begun.notified().await;
    let duplicates = (0..30).map(|_| world.pay(&world.once, "k"));
    let all = futures_util::future::join_all(duplicates);
    // The shortest wait of MariaDB is a second, SQLite's is ten: one after the other they would take half a minute, or five.
    let all = tokio::time::timeout(Duration::from_secs(25), all).await.expect("they wait together");
    for refused in all {
        let is_told = matches!(refused, Err(No::Refused(Refusal::InProgress { .. } | Refusal::Store(_))));
        assert!(is_told, "{refused:?}");
    }
    end.notify_one();
    first.await.unwrap().unwrap();
    assert_eq!(world.pay(&world.once, "k").await.unwrap(), "paid");
    assert_eq!(world.effects("k").await, 1);
}

/// The first call runs elsewhere. Its retry meets a call of another payload here, which waits for the same record in vain.
async fn a_retry_is_not_judged_by_another_payload_that_never_ran<DB: Effects>() {
    let world = World::<DB>::new(waiting(LONG)).await;
    let (first, begun, end) = hold(&world, "k", 1);
    begun.notified().await;
    let here = world.elsewhere(waiting(Duration::ZERO)).await;
    let call = |payload: u32| {
        let call = here.call("pay", "k").input(&payload);
        call.in_transaction(|_: Tx<DB>| async { Ok::<_, No>("ran".to_owned()) })
    };
    // In this order: the other payload goes first, and the retry is behind it.
    let (_, retry) = tokio::join!(call(2), call(1));
    // SQLite has one writer at a time: there the whole file is locked.
    let is_told = matches!(retry, Err(No::Refused(Refusal::InProgress { .. } | Refusal::Store(_))));
    assert!(is_told, "{retry:?}");
    end.notify_one();
    assert_eq!(first.await.unwrap().unwrap(), "paid");
    assert_eq!(call(1).await.unwrap(), "paid");
    assert!(matches!(call(2).await, Err(No::Refused(Refusal::Mismatch))));
}

/// The handler lets go of its claim; another process runs the call and answers; then the handler says no.
async fn a_refusal_that_another_attempt_overtook_is_not_told_as_the_answer<DB: Effects>() {
    let world = Arc::new(World::<DB>::new(waiting(LONG)).await);
    let elsewhere = world.elsewhere(waiting(LONG)).await;
    let inside = (Arc::clone(&world), elsewhere.clone());
    let call = world.once.call("pay", "k").in_transaction(move |mut tx: Tx<DB>| async move {
        DB::say(&mut tx, "ROLLBACK").await;
        let (world, elsewhere) = inside;
        world.pay(&elsewhere, "k").await.unwrap();
        Err::<String, _>(No::SoldOut)
    });
    let told = call.await.expect("what was paid is not sold out");
    assert_eq!(world.pay(&elsewhere, "k").await.unwrap(), told, "all are told the same");
    assert_eq!(world.pay(&world.once, "k").await.unwrap(), told);
    assert_eq!(world.effects("k").await, 1);
}

async fn a_savepoint_of_the_handler_is_its_own<DB: Effects>() {
    let world = World::<DB>::new(Settings::default()).await;
    let table = world.table.clone();
    let ran: Result<String, No> = world
        .once
        .call("pay", "k")
        .in_transaction(move |mut tx: Tx<DB>| async move {
            DB::effect(&mut tx, &table, "k").await;
            let mut inner = sqlx::Connection::begin(&mut *tx).await.unwrap();
            DB::effect(&mut inner, &table, "undone").await;
            inner.rollback().await.unwrap();
            let mut inner = sqlx::Connection::begin(&mut *tx).await.unwrap();
            DB::effect(&mut inner, &table, "done").await;
            inner.commit().await.unwrap();
            Ok("paid".to_owned())
        })
        .await;
    ran.unwrap();
    let counts = (world.effects("k").await, world.effects("undone").await, world.effects("done").await);
    assert_eq!(counts, (1, 0, 1));
}

/// Every connection of the pool can be used, and none of them is in a transaction.
async fn every_connection_is_free<DB: Effects>(store: &SqlStore<DB>) {
    let mut all = Vec::new();
    for _ in 0..store.pool().options().get_max_connections() {
        let mut connection = store.pool().acquire().await.unwrap();
        assert!(!sqlx::Connection::is_in_transaction(&*connection));
        // Not read-only either, and nothing that it writes waits for a commit.
        DB::say(&mut connection, "CREATE TEMPORARY TABLE free_for_all (a INT)").await;
        DB::say(&mut connection, "DROP TABLE free_for_all").await;
        DB::say(&mut connection, "SELECT 1").await;
        all.push(connection);
    }
}

async fn a_caller_who_goes_away_stops_nothing_and_leaves_no_transaction<DB: Effects>() {
    let world = Arc::new(World::<DB>::new(waiting(LONG)).await);
    for n in 0..20_u64 {
        let key = format!("k{n}");
        let (caller, name) = (Arc::clone(&world), key.clone());
        let call = tokio::spawn(async move { caller.pay(&caller.once, &name).await });
        // Somewhere between nothing and the end, BEGIN and COMMIT included.
        tokio::time::sleep(Duration::from_micros(n * 400)).await;
        call.abort();
        let _ = call.await;
        // Whatever became of it, the key resolves by itself.
        world.pay(&world.once, &key).await.unwrap();
        assert_eq!(world.effects(&key).await, 1);
    }
    world.once.drain(LONG).await;
    every_connection_is_free(&world.store).await;
}

async fn a_large_answer_is_kept_byte_for_byte<DB: Effects>() {
    let world = World::<DB>::new(Settings::default()).await;
    for size in [0, 1, 10_000, 300_000] {
        let key = format!("k{size}");
        let large = "ä\0'\\".repeat(size);
        let answer = large.clone();
        let first: Result<String, No> = world
            .once
            .call("pay", key.as_str())
            .in_transaction(move |_: Tx<DB>| async move { Ok(answer) })
            .await;
        let elsewhere = world.elsewhere(Settings::default()).await;
        let again: Result<String, No> = elsewhere
            .call("pay", key.as_str())
            .in_transaction(|_: Tx<DB>| async { Ok("ran twice".to_owned()) })
            .await;
        if size < 300_000 {
            assert!(first.unwrap() == large && again.unwrap() == large, "{size}");
        } else {
            // Above what the settings allow, it is kept that it happened.
            first.unwrap();
            assert!(matches!(again, Err(No::Refused(Refusal::Duplicate))), "{again:?}");
        }
    }
}

async fn a_record_that_was_released_under_a_lease_is_taken_in_the_transaction<DB: Effects>() {
    let world = World::<DB>::new(Settings::default()).await;
    let leases = Idempotency::new(world.store.clone());
    let failed: Result<String, No> = leases
        .call("pay", "k")
        .run_with(|permit| async move {
            assert_eq!(Tx::<DB>::of(&permit).unwrap_err(), NoTx::NotInTransaction);
            Err(No::Refused(Refusal::Duplicate))
        })
        .await;
    assert!(failed.is_err());
    // Unknown to leases, and to this mode too: it was an effect outside of the transaction.
    let held = world.pay(&world.once, "k").await;
    assert!(matches!(held, Err(No::Refused(Refusal::Unknown { .. }))), "{held:?}");

    let (id, fence) = world.release("r").await;
    world.pay(&world.once, "r").await.unwrap();
    let snapshot = world.store.get(&id).await.unwrap().unwrap();
    assert_eq!((snapshot.attempts, snapshot.state.kind()), (2, StateKind::Completed));
    assert!(snapshot.fence > fence);
}

async fn an_expired_record_is_taken_in_the_transaction<DB: Effects>() {
    let world = World::<DB>::new(Settings { retain: Duration::from_millis(50), ..Settings::default() }).await;
    let first = world.pay(&world.once, "k").await.unwrap();
    tokio::time::sleep(Duration::from_millis(120)).await;
    let second = world.pay(&world.once, "k").await.unwrap();
    assert_ne!(first, second, "it was kept for 50 ms only");
    assert_eq!(world.effects("k").await, 2);
}

async fn a_drain_waits_for_transactions<DB: Effects>() {
    let world = World::<DB>::new(Settings::default()).await;
    let (call, begun, end) = hold(&world, "k", 0);
    begun.notified().await;
    let left = world.once.drain(Duration::from_millis(50)).await;
    assert_eq!(left, onlyonce_core::Drained::Left(1));
    end.notify_one();
    assert_eq!(world.once.drain(LONG).await, onlyonce_core::Drained::Everything);
    call.await.unwrap().unwrap();
    let late = world.pay(&world.once, "late").await;
    assert!(matches!(late, Err(No::Refused(Refusal::Store(_)))), "{late:?}");
}

async fn over_long_keys_are_refused_before_anything_is_asked<DB: Effects>() {
    let world = World::<DB>::new(Settings::default()).await;
    let refused = world.pay(&world.once, &"k".repeat(300)).await;
    let Err(No::Refused(Refusal::Input(error))) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("255"), "it says how long a key may be: {error}");
}

/// On MySQL DDL ends a transaction, and nothing can be written after its end: so it is refused, and never runs twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ddl_in_a_handler_on_mysql_is_refused_and_has_no_second_effect() {
    let world = World::<onlyonce_sql::MySql>::new(Settings::default()).await;
    let table = world.table.clone();
    let ran = world
        .once
        .call("pay", "k")
        .in_transaction(move |mut tx: Tx<onlyonce_sql::MySql>| async move {
            onlyonce_sql::MySql::effect(&mut tx, &table, "k").await;
            let ddl = format!("CREATE TABLE ddl_{table} (id INT)");
            let refused = onlyonce_sql::MySql::try_say(&mut tx, &ddl).await.unwrap_err();
            assert!(refused.to_string().contains("READ ONLY"), "{refused}");
            Err::<String, _>(No::Accident)
        })
        .await;
    assert!(matches!(ran, Err(No::Accident)), "{ran:?}");
    // What came before the DDL may have been committed with the claim, which is then judged by its lease; or all was undone.
    match world.pay(&world.once, "k").await {
        Ok(_) | Err(No::Refused(Refusal::InProgress { .. })) => {}
        Err(other) => panic!("{other:?}"),
    }
    assert_eq!(world.effects("k").await, 1);
    every_connection_is_free(&world.store).await;
}

/// Not on SQLite, where one who writes keeps everybody else from claiming.
async fn a_handler_waits_for_a_row_however_short_its_claim_may_wait<DB: Effects>() {
    let world = World::<DB>::new(waiting(Duration::ZERO)).await;
    let touch = format!("UPDATE effects_{} SET name = 'row' WHERE name = 'row'", world.table);
    DB::effect(&mut *world.store.pool().acquire().await.unwrap(), &world.table, "row").await;
    // A record that was released is claimed by another statement.
    world.release("released").await;
    for key in ["new", "released"] {
        let mut other = world.store.pool().begin().await.unwrap();
        DB::say(&mut other, &touch).await;
        let touch = touch.clone();
        let call = world.once.call("pay", key).in_transaction(move |mut tx: Tx<DB>| async move {
            DB::say(&mut tx, &touch).await;
            Ok::<_, No>("paid".to_owned())
        });
        let call = tokio::spawn(call);
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        other.commit().await.unwrap();
        assert_eq!(call.await.unwrap().unwrap(), "paid", "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_on_mysql_waits_for_a_row_however_short_its_claim_may_wait() {
    a_handler_waits_for_a_row_however_short_its_claim_may_wait::<onlyonce_sql::MySql>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_on_postgres_waits_for_a_row_however_short_its_claim_may_wait() {
    a_handler_waits_for_a_row_however_short_its_claim_may_wait::<onlyonce_sql::Postgres>().await;
}
