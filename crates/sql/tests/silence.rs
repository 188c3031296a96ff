//! A database that says nothing any more, and does not hang up either: its host lost power, or a firewall forgot the connection.
//! Whatever waits for it ends, and gives back what it holds.
#![cfg(all(unix, feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::*;
use onlyonce_core::{ErrorKind, Idempotency, Refusal, Settings, Settlement, Store as _, Verdict};
use onlyonce_sql::outbox::{Event, Outbox, Relay};
use onlyonce_sql::{Database, InTransaction as _, SqlStore, Tx};
use onlyonce_testkit::{FaultProxy, NetFault};
use tokio::sync::{Notify, Semaphore};

/// How long a statement may take.
const PATIENCE: Duration = Duration::from_millis(500);
/// Far more than all patience together, on a machine that has other things to do.
const ENOUGH: Duration = Duration::from_secs(40);

mod mysql {
    use onlyonce_sql::MySql;

    const BEGIN: &[u8] = b"START TRANSACTION";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn claims_that_nobody_answers_end_and_leave_their_places() {
        super::claims_that_nobody_answers_end_and_leave_their_places::<MySql>().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_connection_that_falls_silent_at_any_step_is_given_up() {
        super::a_connection_that_falls_silent_at_any_step_is_given_up::<MySql>(BEGIN).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_duplicate_waits_for_no_longer_than_it_may() {
        super::a_duplicate_waits_for_no_longer_than_it_may::<MySql>().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_commit_that_nobody_answers_gives_its_connection_back() {
        super::a_commit_that_nobody_answers_gives_its_connection_back::<MySql>(b"\x03COMMIT").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_relay_whose_connection_falls_silent_goes_on_with_another() {
        super::a_relay_whose_connection_falls_silent_goes_on_with_another::<MySql>(BEGIN).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_relay_that_nobody_answers_can_be_shut_down() {
        super::a_relay_that_nobody_answers_can_be_shut_down::<MySql>(BEGIN).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_store_that_nobody_answers_is_not_opened_at_any_step() {
        super::a_store_that_nobody_answers_is_not_opened_at_any_step::<MySql>().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_outbox_that_nobody_answers_says_so() {
        super::an_outbox_that_nobody_answers_says_so::<MySql>().await;
    }
}

mod postgres {
    use onlyonce_sql::Postgres;

    const BEGIN: &[u8] = b"BEGIN";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn claims_that_nobody_answers_end_and_leave_their_places() {
        super::claims_that_nobody_answers_end_and_leave_their_places::<Postgres>().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_connection_that_falls_silent_at_any_step_is_given_up() {
        super::a_connection_that_falls_silent_at_any_step_is_given_up::<Postgres>(BEGIN).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_duplicate_waits_for_no_longer_than_it_may() {
        super::a_duplicate_waits_for_no_longer_than_it_may::<Postgres>().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_commit_that_nobody_answers_gives_its_connection_back() {
        super::a_commit_that_nobody_answers_gives_its_connection_back::<Postgres>(b"COMMIT\0").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_relay_whose_connection_falls_silent_goes_on_with_another() {
        super::a_relay_whose_connection_falls_silent_goes_on_with_another::<Postgres>(BEGIN).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_relay_that_nobody_answers_can_be_shut_down() {
        super::a_relay_that_nobody_answers_can_be_shut_down::<Postgres>(BEGIN).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_store_that_nobody_answers_is_not_opened_at_any_step() {
        super::a_store_that_nobody_answers_is_not_opened_at_any_step::<Postgres>().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_outbox_that_nobody_answers_says_so() {
        super::an_outbox_that_nobody_answers_says_so::<Postgres>().await;
    }
}

struct World<DB: Effects> {
    table: String,
    /// Straight to the server.
    near: SqlStore<DB>,
    proxy: FaultProxy,
    /// Through the proxy.
    through: SqlStore<DB>,
}

impl<DB: Effects> World<DB> {
    async fn new(connections: u32) -> Self {
        let table = table();
        let near = open_table::<DB>(&table).await;
        DB::make(near.pool(), &table).await;
        let (proxy, url) = proxied::<DB>().await;
        let through = SqlStore::<DB>::builder(url).table(&table).max_connections(connections);
        let through = through.response_timeout(PATIENCE).open().await.unwrap();
        Self { table, near, proxy, through }
    }

    fn engine(&self, wait: Duration) -> Idempotency {
        let settings = Settings { wait, ..Settings::default() };
        // A server that never hears of an end gives up its own side of it after this.
        let transactions = self.through.same_transaction().idle_timeout(Duration::from_secs(1));
        transactions.settings(settings).build().unwrap()
    }

    async fn pay(&self, once: &Idempotency, key: &str) -> Result<String, No> {
        let (table, name) = (self.table.clone(), key.to_owned());
        let pay = once.call("pay", key).in_transaction(move |mut tx: Tx<DB>| async move {
            DB::effect(&mut tx, &table, &name).await;
            Ok(format!("paid {}", rand::random::<u64>()))
        });
        in_time(pay).await
    }

    /// Retries, as a client does.
    async fn insist(&self, once: &Idempotency, key: &str) -> String {
        for _ in 0..40 {
            match self.pay(once, key).await {
                Ok(answer) => return answer,
                Err(No::Refused(Refusal::Store(error))) if error.kind() != ErrorKind::Rejected => {}
                Err(No::Refused(Refusal::InProgress { .. })) => {}
                Err(other) => panic!("{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{key} did not resolve")
    }

    async fn effects(&self, key: &str) -> i64 {
        DB::count(self.near.pool(), &self.table, key).await
    }

    /// Until the pool has its connections back.
    async fn is_idle(&self) {
        let pool = self.through.pool();
        in_time(async {
            while pool.num_idle() == 0 || pool.num_idle() < pool.size() as usize {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(ENOUGH, work).await.expect("it hangs")
}

async fn claims_that_nobody_answers_end_and_leave_their_places<DB: Effects>() {
    let world = World::<DB>::new(3).await;
    let once = world.engine(Duration::ZERO);
    world.pay(&once, "before").await.unwrap();
    world.is_idle().await;
    world.proxy.black_hole();
    // More keys than there are places, and duplicates behind each.
    for round in 0..2 {
        let keys = (0..8).map(|n| format!("k{}", n % 4));
        let calls = keys.map(|key| async { world.pay(&once, &{ key }).await });
        for refused in futures_util::future::join_all(calls).await {
            match refused {
                Err(No::Refused(Refusal::Store(error))) => {
                    let kind = error.kind();
                    assert!(matches!(kind, ErrorKind::Unavailable | ErrorKind::Busy), "{round}: {error:?}");
                }
                // Behind one that waits for a connection for longer than a duplicate may wait for it.
                Err(No::Refused(Refusal::InProgress { .. })) => {}
                other => panic!("{round}: {other:?}"),
            }
        }
    }
    world.proxy.heal().await;
    for n in 0..4 {
        let key = format!("k{n}");
        world.pay(&once, &key).await.unwrap();
        assert_eq!(world.effects(&key).await, 1);
    }
}

/// Only one connection is lost, and never heard of again; others can be made at once.
async fn a_connection_that_falls_silent_at_any_step_is_given_up<DB: Effects>(begin: &[u8]) {
    for fault in [NetFault::DropRequest, NetFault::DropReply] {
        // A first call: its beginning, and its claim.
        for claim in [false, true] {
            let world = World::<DB>::new(3).await;
            let once = world.engine(Duration::ZERO);
            let insert = format!("INSERT INTO {}", world.table);
            world.proxy.when(if claim { insert.as_bytes() } else { begin }, fault);
            let first = world.insist(&once, "k").await;
            assert_eq!(world.proxy.traffic().faults, 1, "{fault:?}");
            assert_eq!(world.insist(&once, "k").await, first);
            assert_eq!(world.effects("k").await, 1, "{fault:?}");
        }
        // A replay leaves its transaction, and has its answer however that ends.
        let world = World::<DB>::new(3).await;
        let once = world.engine(Duration::ZERO);
        let first = world.pay(&once, "k").await.unwrap();
        world.proxy.when(b"ROLLBACK", fault);
        assert_eq!(world.pay(&once, "k").await.unwrap(), first);
        // A call that fails does so too.
        world.proxy.when(b"ROLLBACK", fault);
        let failed = once.call("pay", "f").in_transaction(|_: Tx<DB>| async { Err::<(), _>(No::Accident) });
        assert!(matches!(in_time(failed).await, Err(No::Accident)));
        world.insist(&once, "f").await;
        assert_eq!(world.effects("f").await, 1);
        // A record of an earlier attempt is taken by an update.
        let id = once.call("pay", "r").record_id().unwrap();
        let attempt = begin_lease(&world.near, &id).await;
        let released = Settlement { verdict: Verdict::Released, retain: ENOUGH };
        world.near.settle(&id, &attempt, &released).await.unwrap();
        world.proxy.when(format!("UPDATE {} SET hash_rules", world.table).as_bytes(), fault);
        world.insist(&once, "r").await;
        assert_eq!(world.effects("r").await, 1);
        assert_eq!(world.proxy.traffic().faults, 3, "{fault:?}");
    }
}

async fn begin_lease<DB: Effects>(
    store: &SqlStore<DB>,
    id: &onlyonce_core::RecordId,
) -> onlyonce_core::AttemptId {
    begin(store, id).await.unwrap().expect("nobody was there")
}

/// The first call of a key may wait for long, for a record that is held elsewhere; one behind it may not.
async fn a_duplicate_waits_for_no_longer_than_it_may<DB: Effects>() {
    let world = World::<DB>::new(3).await;
    let (begun, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let elsewhere = world.near.same_transaction().build().unwrap();
    let (tell, until) = (Arc::clone(&begun), Arc::clone(&end));
    let holds = tokio::spawn(elsewhere.call("pay", "k").in_transaction(move |_: Tx<DB>| async move {
        tell.notify_one();
        until.notified().await;
        Ok::<_, No>("paid".to_owned())
    }));
    begun.notified().await;
    let once = world.engine(ENOUGH * 2);
    let run = |once: &Idempotency| {
        tokio::spawn(
            once.call("pay", "k").in_transaction(|_: Tx<DB>| async { Ok::<_, No>("ran".to_owned()) }),
        )
    };
    let leads = run(&once);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let settings = Settings { wait: Duration::ZERO, ..Settings::default() };
    let follows = in_time(run(&once.with_settings(settings).unwrap())).await.unwrap();
    assert!(matches!(follows, Err(No::Refused(Refusal::InProgress { .. }))), "{follows:?}");
    end.notify_one();
    assert_eq!(holds.await.unwrap().unwrap(), "paid");
    assert_eq!(in_time(leads).await.unwrap().unwrap(), "paid");
}

/// What became of it is looked for on another connection, for which there has to be room: this pool has one.
async fn a_commit_that_nobody_answers_gives_its_connection_back<DB: Effects>(commit: &[u8]) {
    let world = World::<DB>::new(1).await;
    let once = world.engine(Duration::ZERO);
    world.proxy.when(commit, NetFault::DropReply);
    let first = world.pay(&once, "k").await.expect("committed, and found out");
    assert_eq!(world.pay(&once, "k").await.unwrap(), first);
    assert_eq!(world.effects("k").await, 1);
}

struct Relayed<DB: Effects> {
    near: Outbox<DB>,
    pool: sqlx::Pool<DB>,
    proxy: FaultProxy,
    relay: Relay<DB>,
    published: Arc<AtomicU32>,
    /// As many may be published as there are permits.
    gate: Arc<Semaphore>,
}

impl<DB: Effects> Relayed<DB> {
    async fn new() -> Self {
        let table = table();
        let pool = open_table::<DB>(&common::table()).await.pool().clone();
        let near = Outbox::new(pool.clone()).table(&table).unwrap();
        near.migrate().await.unwrap();
        let (proxy, url) = proxied::<DB>().await;
        let through = sqlx::pool::PoolOptions::<DB>::new().max_connections(2);
        let through = through.acquire_timeout(Duration::from_secs(2)).connect(&url).await.unwrap();
        let (published, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(100)));
        let (counted, open) = (Arc::clone(&published), Arc::clone(&gate));
        let relay = Relay::new(Outbox::new(through).table(&table).unwrap(), move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            let open = Arc::clone(&open);
            async move {
                open.acquire().await?.forget();
                Ok(())
            }
        });
        let relay =
            relay.every(Duration::from_millis(20)).hold(Duration::from_secs(2)).response_timeout(PATIENCE);
        Self { near, pool, proxy, relay, published, gate }
    }

    async fn put(&self) {
        put(&self.pool, &self.near).await;
    }
}

async fn put<DB: Database>(pool: &sqlx::Pool<DB>, outbox: &Outbox<DB>) {
    let mut tx = pool.begin().await.unwrap();
    outbox.put(&mut tx, &Event::new("t", "x")).await.unwrap();
    tx.commit().await.unwrap();
}

async fn reaches(count: &AtomicU32, least: u32) {
    in_time(async {
        while count.load(Ordering::SeqCst) < least {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

async fn is_faulty(proxy: &FaultProxy, faults: u64) {
    in_time(async {
        while proxy.traffic().faults < faults {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn is_empty<DB: Database>(outbox: &Outbox<DB>) {
    in_time(async {
        while outbox.waiting().await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

async fn a_relay_whose_connection_falls_silent_goes_on_with_another<DB: Effects>(begin: &[u8]) {
    let Relayed { near, pool, proxy, relay, published, .. } = Relayed::<DB>::new().await;
    let relaying = relay.start();
    put(&pool, &near).await;
    is_empty(&near).await;
    // As it looks for more, and as it forgets what is published.
    for (n, step) in [begin, b"DELETE FROM"].into_iter().enumerate() {
        for fault in [NetFault::DropRequest, NetFault::DropReply] {
            let (faults, before) = (proxy.traffic().faults, published.load(Ordering::SeqCst));
            proxy.when(step, fault);
            put(&pool, &near).await;
            reaches(&published, before + 1).await;
            is_empty(&near).await;
            is_faulty(&proxy, faults + 1).await;
            put(&pool, &near).await;
            is_empty(&near).await;
            assert!(published.load(Ordering::SeqCst) >= before + 2, "{n} {fault:?}");
        }
    }
    in_time(relaying.shutdown()).await;
}

async fn a_relay_that_nobody_answers_can_be_shut_down<DB: Effects>(begin: &[u8]) {
    // As it looks for more, and as it forgets what is published.
    for in_hand in [false, true] {
        let relayed = Relayed::<DB>::new().await;
        if in_hand {
            relayed.gate.forget_permits(100);
            relayed.put().await;
        }
        let Relayed { near, pool, proxy, relay, published, gate } = relayed;
        let relaying = relay.start();
        if in_hand {
            reaches(&published, 1).await;
        }
        proxy.when(if in_hand { b"DELETE FROM" } else { begin }, NetFault::DropRequest);
        gate.add_permits(100);
        is_faulty(&proxy, 1).await;
        proxy.black_hole();
        in_time(relaying.shutdown()).await;
        // What was in hand is published again, by whoever comes next.
        put(&pool, &near).await;
        let next = Relay::new(near.clone(), |_| async { Ok(()) }).start();
        is_empty(&near).await;
        in_time(next.shutdown()).await;
    }
}

/// Every exchange of an opening with migrations falls silent once: the first, the second, and so on, until an opening gets through.
async fn a_store_that_nobody_answers_is_not_opened_at_any_step<DB: Effects>() {
    let mut steps = 0;
    loop {
        let (proxy, url) = proxied::<DB>().await;
        let pool =
            DB::pool_options().max_connections(2).acquire_timeout(PATIENCE).connect(&url).await.unwrap();
        let table = table();
        for _ in 0..steps {
            proxy.next(NetFault::DelayReply(Duration::ZERO), 1);
        }
        proxy.next(NetFault::DropReply, 1);
        let open = SqlStore::<DB>::from_pool(pool).table(&table).migrate();
        let opened = tokio::time::timeout(ENOUGH, open.response_timeout(PATIENCE / 5).open()).await;
        let opened = opened.unwrap_or_else(|_| panic!("it hangs after {steps} steps"));
        // Then only what comes after it was not answered.
        if opened.is_ok() {
            break;
        }
        steps += 1;
    }
    assert!(steps > 8, "an opening has more steps than {steps}");
}

async fn an_outbox_that_nobody_answers_says_so<DB: Effects>() {
    let near = DB::pool_options().connect(&DB::url()).await.unwrap();
    let table = table();
    Outbox::<DB>::new(near.clone()).table(&table).unwrap().migrate().await.unwrap();
    let (proxy, url) = proxied::<DB>().await;
    let pool =
        DB::pool_options().max_connections(4).acquire_timeout(PATIENCE * 4).connect(&url).await.unwrap();
    let outbox = Outbox::<DB>::new(pool.clone()).table(&table).unwrap().response_timeout(PATIENCE / 5);
    // Two connections that are in use, so that nothing is asked of the pool later.
    let (mut first, mut second) = (pool.begin().await.unwrap(), pool.begin().await.unwrap());
    let event = Event::new("orders.paid", "{}");
    outbox.put(&mut first, &event).await.unwrap();
    proxy.black_hole();
    let late = tokio::time::timeout(ENOUGH, outbox.put(&mut second, &event)).await;
    late.expect("it hangs").unwrap_err();
    proxy.heal().await;
    let idle = pool.acquire().await.unwrap();
    drop(idle);
    for ask in ["migrate", "waiting"] {
        let asked = async {
            match ask {
                "migrate" => outbox.migrate().await,
                _ => outbox.waiting().await.map(drop),
            }
        };
        // The ping with which the pool looks at a connection, and then silence.
        proxy.next(NetFault::DelayReply(Duration::ZERO), 1);
        proxy.next(NetFault::DropReply, 2);
        let asked = tokio::time::timeout(ENOUGH, asked).await;
        asked.unwrap_or_else(|_| panic!("{ask} hangs")).unwrap_err();
        proxy.heal().await;
    }
    assert_eq!(outbox.waiting().await.unwrap(), 0, "it goes on with another connection");
}
