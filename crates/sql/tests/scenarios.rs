//! What a store must survive, by the numbers of the list in the design; on MySQL (or MariaDB) and on PostgreSQL, in lease mode.
//!
//! Elsewhere: 6 to 11 one by one in `processes.rs`, 22 and 23 in `tx_faults.rs`; 12 and 15 are laws (`laws.rs`), and here again
//! through the engine.
#![cfg(all(unix, feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use common::*;
use onlyonce_core::{
    AttemptId, Begin, Claim, Clock, Idempotency, ManualClock, Moment, Refusal, Settings, Settled, Settlement,
    Sleep, StateKind, Store, SystemClock, Takeover, Uptime, Verdict,
};
use onlyonce_sql::{MySql, Postgres, SqlStore, Sqlite};
use onlyonce_testkit::{KillTest, NetFault};

macro_rules! on_servers {
    ($($test:ident,)+) => {
        mod mysql { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $test() { super::$test::<onlyonce_sql::MySql>().await; })+ }
        mod postgres { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $test() { super::$test::<onlyonce_sql::Postgres>().await; })+ }
    };
}

on_servers! {
    scenario_01_the_reply_to_a_begin_is_lost,
    scenario_02_the_reply_to_a_settlement_is_lost,
    scenario_03_a_begin_is_sent_twice,
    scenario_04_two_hundred_concurrent_duplicates,
    scenario_05_another_payload_in_flight_and_after,
    scenario_12_a_holder_past_its_lease_completes_if_nobody_took_over,
    scenario_13_one_renewal_fails,
    scenario_14_renewals_are_lost_and_the_handler_is_told_before_its_deadline,
    scenario_15_a_former_owner_releases_nothing,
    scenario_24_the_store_is_down_at_the_begin,
    scenario_25_and_26_the_store_dies_during_the_handler_and_comes_back_without_a_storm,
    scenario_27_a_slow_store_does_not_pile_up_waiters,
    scenario_28_and_30_processes_whose_clocks_are_an_hour_apart,
    scenario_31_expiry_races_a_retry,
    scenario_32_a_sweep_races_settlements,
}

const LONG: Duration = Duration::from_secs(60);
const LOST_REPLY: NetFault = NetFault::ResetReply { after: 0 };

/// A call with an effect outside of the database, which is counted.
async fn pay(once: &Idempotency, key: &str, effects: &Arc<AtomicU32>) -> Result<u32, No> {
    let effects = Arc::clone(effects);
    once.call("pay", key).run(async move { Ok(effects.fetch_add(1, Ordering::Relaxed) + 1) }).await
}

fn patient(store: impl Store) -> Idempotency {
    let settings = Settings { wait: LONG, ..Settings::default() };
    Idempotency::builder(store).settings(settings).build().unwrap()
}

async fn made<DB: Served>() -> (String, SqlStore<DB>) {
    let table = table();
    let store = open_table::<DB>(&table).await;
    (table, store)
}

async fn scenario_01_the_reply_to_a_begin_is_lost<DB: Served>() {
    let (table, store) = made::<DB>().await;
    let (proxy, through) = behind::<DB>(&table).await;
    proxy.when(format!("INSERT INTO {table}").as_bytes(), LOST_REPLY);
    let (once, effects) = (patient(through), Arc::new(AtomicU32::new(0)));
    assert_eq!(pay(&once, "k", &effects).await.unwrap(), 1);
    assert_eq!(proxy.traffic().faults, 1);
    let id = once.call("pay", "k").record_id().unwrap();
    let found = store.get(&id).await.unwrap().unwrap();
    assert_eq!((found.attempts, found.state.kind()), (1, StateKind::Completed));
}

async fn scenario_02_the_reply_to_a_settlement_is_lost<DB: Served>() {
    let (table, store) = made::<DB>().await;
    let (proxy, through) = behind::<DB>(&table).await;
    proxy.when(format!("UPDATE {table} SET status").as_bytes(), LOST_REPLY);
    let (once, effects) = (patient(through), Arc::new(AtomicU32::new(0)));
    assert_eq!(pay(&once, "k", &effects).await.unwrap(), 1);
    assert_eq!(proxy.traffic().faults, 1);
    assert_eq!(pay(&patient(store), "k", &effects).await.unwrap(), 1);
    assert_eq!(effects.load(Ordering::Relaxed), 1);
}

async fn scenario_03_a_begin_is_sent_twice<DB: Served>() {
    let (_, store) = made::<DB>().await;
    let (id, claim) = (id(), claim());
    let first = store.begin(&id, &claim).await.unwrap();
    assert!(matches!(first, Begin::Acquired { attempt: 1, .. }), "{first:?}");
    assert_eq!(store.begin(&id, &claim).await.unwrap(), first);
}

async fn scenario_04_two_hundred_concurrent_duplicates<DB: Served>() {
    let (table, store) = made::<DB>().await;
    let engines = [patient(store), patient(open_table::<DB>(&table).await)];
    let effects = Arc::new(AtomicU32::new(0));
    let calls: Vec<_> = (0..200)
        .map(|n| {
            let (once, effects) = (engines[n % 2].clone(), Arc::clone(&effects));
            tokio::spawn(async move { pay(&once, "k", &effects).await.unwrap() })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), 1);
    }
    assert_eq!(effects.load(Ordering::Relaxed), 1);
}

async fn scenario_05_another_payload_in_flight_and_after<DB: Served>() {
    let (table, store) = made::<DB>().await;
    let (once, other) = (patient(store), patient(open_table::<DB>(&table).await));
    let (begun, end) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (tell, until) = (Arc::clone(&begun), Arc::clone(&end));
    let call = once.call("pay", "k").input(&1).run_detached(async move {
        tell.notify_one();
        until.notified().await;
        Ok::<_, No>(1)
    });
    let call = tokio::spawn(call);
    begun.notified().await;
    for once in [&once, &other] {
        let refused: Result<i32, No> = once.call("pay", "k").input(&2).run(async { Ok(2) }).await;
        assert!(matches!(refused, Err(No::Refused(Refusal::Mismatch))), "{refused:?}");
    }
    end.notify_one();
    assert_eq!(call.await.unwrap().unwrap(), 1);
    let refused: Result<i32, No> = other.call("pay", "k").input(&2).run(async { Ok(2) }).await;
    assert!(matches!(refused, Err(No::Refused(Refusal::Mismatch))), "{refused:?}");
}

async fn scenario_12_a_holder_past_its_lease_completes_if_nobody_took_over<DB: Served>() {
    let (_, store) = made::<DB>().await;
    let (id, claim) = (id(), Claim { lease: Duration::from_millis(30), ..claim() });
    let Begin::Acquired { fence, .. } = store.begin(&id, &claim).await.unwrap() else { panic!("taken") };
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(store.get(&id).await.unwrap().unwrap().state.kind(), StateKind::Lapsed);
    let attempt = AttemptId { owner: claim.owner, fence: Some(fence) };
    assert_eq!(store.settle(&id, &attempt, &completed("late")).await.unwrap(), Settled::Applied);
}

/// A call that runs for a while under a lease of three seconds, through a proxy.
async fn scenario_13_one_renewal_fails<DB: Served>() {
    let (table, store) = made::<DB>().await;
    let (proxy, through) = behind::<DB>(&table).await;
    let settings = Settings { lease: Duration::from_secs(3), ..Settings::default() };
    let once = Idempotency::builder(through).settings(settings).build().unwrap();
    proxy.when(format!("UPDATE {table} SET lease_until").as_bytes(), NetFault::ResetRequest { after: 0 });
    let done: Result<bool, No> = once
        .call("pay", "k")
        .run_with(|permit| async move {
            tokio::time::sleep(Duration::from_millis(3500)).await;
            Ok(permit.is_lost())
        })
        .await;
    assert!(!done.unwrap(), "the lease was lost to one failed renewal");
    assert_eq!(proxy.traffic().faults, 1);
    let id = once.call("pay", "k").record_id().unwrap();
    assert_eq!(store.get(&id).await.unwrap().unwrap().state.kind(), StateKind::Completed);
}

async fn scenario_14_renewals_are_lost_and_the_handler_is_told_before_its_deadline<DB: Served>() {
    let (table, store) = made::<DB>().await;
    let (proxy, through) = behind::<DB>(&table).await;
    let settings = Settings { lease: Duration::from_secs(2), ..Settings::default() };
    let once = Idempotency::builder(through).settings(settings).build().unwrap();
    let id = once.call("pay", "k").record_id().unwrap();
    let proxy = Arc::new(proxy);
    let hole = Arc::clone(&proxy);
    let call = tokio::spawn(once.call("pay", "k").run_detached_with(move |permit| async move {
        hole.black_hole();
        permit.lost().await;
        // The database, asked past the proxy, has not let anybody else in before.
        let seen = store.get(&id).await.unwrap().unwrap();
        hole.heal().await;
        Ok::<_, No>(seen.attempts)
    }));
    let told = tokio::time::timeout(LONG, call).await;
    assert_eq!(told.expect("the handler was told").unwrap().unwrap(), 1);
}

async fn scenario_15_a_former_owner_releases_nothing<DB: Served>() {
    let (_, store) = made::<DB>().await;
    let (id, first) = (id(), Claim { lease: Duration::from_millis(30), ..claim() });
    let Begin::Acquired { fence, .. } = store.begin(&id, &first).await.unwrap() else { panic!("taken") };
    tokio::time::sleep(Duration::from_millis(100)).await;
    let next = Claim { takeover: Takeover::Seen(fence), ..claim() };
    assert!(matches!(store.begin(&id, &next).await.unwrap(), Begin::Acquired { attempt: 2, .. }));
    let release = Settlement { verdict: Verdict::Released, retain: LONG };
    for fence in [Some(fence), None] {
        let former = AttemptId { owner: first.owner, fence };
        assert_eq!(store.settle(&id, &former, &release).await.unwrap(), Settled::Lost);
    }
    assert_eq!(store.get(&id).await.unwrap().unwrap().state.kind(), StateKind::Running);
}

async fn scenario_24_the_store_is_down_at_the_begin<DB: Served>() {
    let (table, _) = made::<DB>().await;
    let (proxy, through) = behind::<DB>(&table).await;
    let pool = through.pool().clone();
    let (once, effects) = (patient(through), Arc::new(AtomicU32::new(0)));
    proxy.refuse().await;
    proxy.cut();
    let down = tokio::time::timeout(LONG, pay(&once, "k", &effects)).await.expect("told in time");
    assert!(matches!(down, Err(No::Refused(Refusal::Store(_)))), "{down:?}");
    assert_eq!(effects.load(Ordering::Relaxed), 0, "fail closed");
    proxy.heal().await;
    assert!(!pool.is_closed());
    assert_eq!(pay(&once, "k", &effects).await.unwrap(), 1);
}

async fn scenario_25_and_26_the_store_dies_during_the_handler_and_comes_back_without_a_storm<DB: Served>() {
    let (table, store) = made::<DB>().await;
    let (proxy, through) = behind::<DB>(&table).await;
    let proxy = Arc::new(proxy);
    let once = Idempotency::new(through);
    let down = Arc::clone(&proxy);
    let answered: Result<u32, No> = once
        .call("pay", "k")
        .run(async move {
            down.black_hole();
            down.cut();
            // Back before the pool gives up, and after several tries.
            let back = Arc::clone(&down);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(3)).await;
                back.heal().await;
            });
            Ok(7)
        })
        .await;
    assert_eq!(answered.unwrap(), 7, "it happened, so the caller has its answer");
    let id = once.call("pay", "k").record_id().unwrap();
    let stored = async {
        while store.get(&id).await.unwrap().unwrap().state.kind() != StateKind::Completed {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, stored).await.expect("settled in the background");
    assert!(proxy.traffic().exchanges < 200, "{:?}", proxy.traffic());
}

async fn scenario_27_a_slow_store_does_not_pile_up_waiters<DB: Served>() {
    let (table, _) = made::<DB>().await;
    let (proxy, through) = behind::<DB>(&table).await;
    let (once, effects) = (patient(through), Arc::new(AtomicU32::new(0)));
    proxy.always(NetFault::DelayReply(Duration::from_millis(50)));
    let calls: Vec<_> = (0..60)
        .map(|n| {
            let (once, effects) = (once.clone(), Arc::clone(&effects));
            tokio::spawn(async move { pay(&once, &format!("k{}", n % 10), &effects).await.is_ok() })
        })
        .collect();
    let mut answered = 0;
    for call in calls {
        answered +=
            u32::from(tokio::time::timeout(LONG, call).await.expect("nobody waits for ever").unwrap());
    }
    assert!(answered >= 50, "{answered}");
    assert_eq!(effects.load(Ordering::Relaxed), 10);
    assert_eq!(once.in_flight(), 0);
}

async fn scenario_28_and_30_processes_whose_clocks_are_an_hour_apart<DB: Served>() {
    let (table, store) = made::<DB>().await;
    let effects = Arc::new(AtomicU32::new(0));
    let ahead = ManualClock::new();
    ahead.advance(Duration::from_secs(3600));
    let skewed =
        |store: SqlStore<DB>, clock: ManualClock| Idempotency::builder(store).clock(clock).build().unwrap();
    let behind = skewed(open_table::<DB>(&table).await, ManualClock::new());
    let ahead = skewed(open_table::<DB>(&table).await, ahead);
    for once in [&behind, &ahead, &Idempotency::new(store.clone())] {
        assert_eq!(pay(once, "k", &effects).await.unwrap(), 1);
    }
    let id = behind.call("pay", "k").record_id().unwrap();
    let found = store.get(&id).await.unwrap().unwrap();
    let day = Duration::from_secs(24 * 3600);
    assert!(
        found.expires_in <= day && found.expires_in > day - LONG,
        "the database's clock judges: {found:?}"
    );
}

async fn scenario_31_expiry_races_a_retry<DB: Served>() {
    let (_, store) = made::<DB>().await;
    let (id, running) = (id(), Arc::new(AtomicBool::new(false)));
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let (store, running) = (store.clone(), Arc::clone(&running));
            tokio::spawn(async move {
                let mut runs = 0;
                for _ in 0..30 {
                    let Some(attempt) = begin(&store, &id).await.unwrap() else { continue };
                    assert!(!running.swap(true, Ordering::SeqCst), "two run at once");
                    runs += 1;
                    running.store(false, Ordering::SeqCst);
                    let how = Settlement { retain: Duration::from_millis(1), ..completed("done") };
                    assert_eq!(store.settle(&id, &attempt, &how).await.unwrap(), Settled::Applied);
                }
                runs
            })
        })
        .collect();
    let mut runs = 0;
    for task in tasks {
        runs += task.await.unwrap();
    }
    assert!(runs > 5, "{runs} runs: nothing was shown");
}

async fn scenario_32_a_sweep_races_settlements<DB: Served>() {
    let (_, store) = made::<DB>().await;
    let done = Arc::new(AtomicBool::new(false));
    let sweeper = tokio::spawn({
        let (store, done) = (store.clone(), Arc::clone(&done));
        async move {
            let mut swept = 0;
            while !done.load(Ordering::Relaxed) {
                swept += store.sweep(50).await.unwrap();
            }
            swept
        }
    });
    for _ in 0..60 {
        let (id, attempt_of) = (id(), Claim { retain_unsettled: Duration::ZERO, ..claim() });
        // It would have expired, were it not for its lease.
        let Begin::Acquired { fence, .. } = store.begin(&id, &attempt_of).await.unwrap() else {
            panic!("taken")
        };
        let attempt = AttemptId { owner: attempt_of.owner, fence: Some(fence) };
        assert_eq!(
            store.settle(&id, &attempt, &completed("done")).await.unwrap(),
            Settled::Applied,
            "swept away"
        );
        let gone = common::id();
        let attempt = begin(&store, &gone).await.unwrap().unwrap();
        let how = Settlement { retain: Duration::ZERO, ..completed("gone") };
        store.settle(&gone, &attempt, &how).await.unwrap();
        assert!(store.get(&id).await.unwrap().is_some());
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    done.store(true, Ordering::Relaxed);
    assert!(sweeper.await.unwrap() > 0, "nothing was swept");
}

/// A database whose clock can be made wrong, for those who come through a pool of their own.
#[async_trait::async_trait]
trait Clocked: Served {
    /// Whether a clock that is set ahead ends a lease before its time.
    const MOVES_LEASES: bool = true;
    /// The table by a clock that is so many hours ahead.
    async fn ahead(table: &str, hours: i64) -> SqlStore<Self>;
}

#[async_trait::async_trait]
impl Clocked for MySql {
    async fn ahead(table: &str, hours: i64) -> SqlStore<Self> {
        let options = sqlx::mysql::MySqlPoolOptions::new().after_connect(move |connection, _| {
            Box::pin(async move {
                let set = format!("SET timestamp = UNIX_TIMESTAMP(NOW(6)) + {}", hours * 3600);
                sqlx::query(sqlx::AssertSqlSafe(set)).execute(connection).await.map(drop)
            })
        });
        let pool = options.connect(&Self::url()).await.unwrap();
        SqlStore::<Self>::from_pool(pool).table(table).open().await.unwrap()
    }
}

#[async_trait::async_trait]
impl Clocked for Postgres {
    /// A clock of that name before the server's own in the search path.
    async fn ahead(table: &str, hours: i64) -> SqlStore<Self> {
        let schema = format!("clock_{:016x}", rand::random::<u64>());
        let make = format!(
            "CREATE SCHEMA {schema}; CREATE FUNCTION {schema}.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE \
             AS $$ SELECT pg_catalog.clock_timestamp() + interval '{hours} hours' $$"
        );
        let plain = sqlx::PgPool::connect(&Self::url()).await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(make)).execute(&plain).await.unwrap();
        let options: sqlx::postgres::PgConnectOptions = Self::url().parse().unwrap();
        let options = options.options([("search_path", format!("{schema},pg_catalog,public"))]);
        let pool = sqlx::PgPool::connect_with(options).await.unwrap();
        SqlStore::<Self>::from_pool(pool).table(table).open().await.unwrap()
    }
}

#[async_trait::async_trait]
impl Clocked for Sqlite {
    // It goes by the time that really passes.
    const MOVES_LEASES: bool = false;

    async fn ahead(table: &str, hours: i64) -> SqlStore<Self> {
        SqlStore::<Self>::builder(Self::url()).table(table).clock(Ahead(hours)).open().await.unwrap()
    }
}

/// The clocks of this machine, of which the wall clock was set ahead by so many hours.
#[derive(Debug)]
struct Ahead(i64);

impl Clock for Ahead {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn wall_micros(&self) -> u64 {
        SystemClock.wall_micros().checked_add_signed(self.0 * 3_600_000_000).unwrap()
    }

    fn sleep(&self, span: Duration) -> Sleep {
        SystemClock.sleep(span)
    }

    fn uptime(&self) -> Option<Uptime> {
        SystemClock.uptime()
    }
}

/// For the whole day of `Settings::retain` nothing runs twice, and whoever holds a record may settle it.
async fn scenario_29_the_clock_of_the_store_steps_by_an_hour<DB: Clocked>() {
    let (table, _) = made::<DB>().await;
    let day = Duration::from_secs(24 * 3600);
    let now = DB::ahead(&table, 0).await;
    for hours in [1, -1] {
        let stepped = DB::ahead(&table, hours).await;
        let (id, claim) = (id(), Claim { retain_unsettled: day, ..claim() });
        let Begin::Acquired { fence, .. } = now.begin(&id, &claim).await.unwrap() else { panic!("taken") };
        // Ahead, the lease is over before its time; behind, it is not. Either way nobody runs a second time.
        let seen = stepped.get(&id).await.unwrap().unwrap().state.kind();
        let is_over = DB::MOVES_LEASES && hours > 0;
        assert_eq!(seen, if is_over { StateKind::Lapsed } else { StateKind::Running });
        assert!(begin(&stepped, &id).await.unwrap().is_none());
        // The holder's answer counts, also at the wrong time; and it stays.
        let attempt = AttemptId { owner: claim.owner, fence: Some(fence) };
        let how = Settlement { retain: day, ..completed("done") };
        assert_eq!(stepped.settle(&id, &attempt, &how).await.unwrap(), Settled::Applied);
        for store in [&now, &stepped] {
            store.sweep(100).await.unwrap();
            assert!(begin(store, &id).await.unwrap().is_none());
            assert_eq!(store.get(&id).await.unwrap().unwrap().state.kind(), StateKind::Completed);
        }
        // Fences rise all the same.
        let again = common::id();
        let first = begin(&now, &again).await.unwrap().unwrap();
        let release = Settlement { verdict: Verdict::Released, retain: day };
        assert_eq!(now.settle(&again, &first, &release).await.unwrap(), Settled::Applied);
        let second = begin(&stepped, &again).await.unwrap().expect("it was released");
        assert!(second.fence > first.fence, "{hours}: {second:?} after {first:?}");
    }
}

#[tokio::test]
async fn scenario_29_the_clock_of_mysql_steps_by_an_hour() {
    scenario_29_the_clock_of_the_store_steps_by_an_hour::<MySql>().await;
}

#[tokio::test]
async fn scenario_29_the_clock_of_postgres_steps_by_an_hour() {
    scenario_29_the_clock_of_the_store_steps_by_an_hour::<Postgres>().await;
}

#[tokio::test]
async fn scenario_29_the_clock_of_sqlite_steps_by_an_hour() {
    scenario_29_the_clock_of_the_store_steps_by_an_hour::<Sqlite>().await;
}

/// Scenarios 6, 8, 9, 10 and 11: processes are killed and paused anywhere, with effects outside of the database.
fn open_for_victim<DB: Served>(directory: &Path) -> Arc<dyn Store> {
    let name = directory.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let store = runtime.block_on(open_table::<DB>(&format!("kill_{name}")));
    // The connections live on it, for as long as the victim does.
    std::mem::forget(runtime);
    Arc::new(store)
}

#[test]
fn scenario_06_to_11_nothing_happens_twice_when_processes_on_mysql_are_killed_and_paused() {
    let report = KillTest::new(
        "scenario_06_to_11_nothing_happens_twice_when_processes_on_mysql_are_killed_and_paused",
    )
    .kills(6)
    .pauses(2)
    .run(open_for_victim::<MySql>);
    assert!(report.summary.effects > 80, "{report:?}");
}

#[test]
fn scenario_06_to_11_nothing_happens_twice_when_processes_on_postgres_are_killed_and_paused() {
    let report = KillTest::new(
        "scenario_06_to_11_nothing_happens_twice_when_processes_on_postgres_are_killed_and_paused",
    )
    .kills(6)
    .pauses(2)
    .run(open_for_victim::<Postgres>);
    assert!(report.summary.effects > 80, "{report:?}");
}
