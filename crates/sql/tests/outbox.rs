//! The outbox on the three databases: what commits is published, under one id, and what rolls back is not.
#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::Served;
use onlyonce_sql::outbox::{Event, Outbox, Relay, Relaying};
use onlyonce_sql::{Database, MySql, Postgres, Sqlite};
use sqlx::{AssertSqlSafe, Executor, Pool};
use tokio::sync::Notify;

/// What was published, in the order in which it was.
#[derive(Clone, Default)]
struct Broker {
    events: Arc<Mutex<Vec<Event>>>,
    came: Arc<Notify>,
}

impl Broker {
    fn take(&self, event: &Event) {
        self.events.lock().unwrap().push(event.clone());
        self.came.notify_waiters();
    }

    fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    /// The ids of those with this key.
    fn of(&self, key: Option<&str>) -> Vec<String> {
        let all = self.events.lock().unwrap();
        all.iter()
            .filter(|event| event.order_key() == key)
            .map(|event| event.message_id().to_owned())
            .collect()
    }

    async fn has(&self, n: usize) {
        let enough = async {
            loop {
                let came = self.came.notified();
                tokio::pin!(came);
                came.as_mut().enable();
                if self.events.lock().unwrap().len() >= n {
                    return;
                }
                came.await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(60), enough).await.is_err() {
            panic!("{n} were to be published; after a minute there are {:?}", self.events());
        }
    }
}

/// Waits until nothing is left.
async fn emptied<DB: Database>(outbox: &Outbox<DB>) {
    for _ in 0..600 {
        if outbox.waiting().await.unwrap() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("after a minute {} events are left", outbox.waiting().await.unwrap());
}

/// An outbox with a table of its own, whose name is that of the topic too.
async fn open<DB: Served>() -> (Pool<DB>, Outbox<DB>, String) {
    let store = common::open::<DB>().await;
    let table = common::table();
    let outbox = Outbox::new(store.pool().clone()).table(&table).unwrap();
    outbox.migrate().await.unwrap();
    outbox.migrate().await.unwrap();
    (store.pool().clone(), outbox, table)
}

async fn put<DB: Database>(pool: &Pool<DB>, outbox: &Outbox<DB>, event: &Event) {
    let mut tx = pool.begin().await.unwrap();
    outbox.put(&mut tx, event).await.unwrap();
    tx.commit().await.unwrap();
}

fn relay<DB: Database>(outbox: &Outbox<DB>, broker: &Broker) -> Relay<DB> {
    let broker = broker.clone();
    Relay::new(outbox.clone(), move |event: Event| {
        broker.take(&event);
        async { Ok(()) }
    })
    .every(Duration::from_millis(20))
}

macro_rules! on_each {
    ($($law:ident),* $(,)?) => {
        mod mysql {$( #[tokio::test(flavor = "multi_thread")] async fn $law() { super::$law::<super::MySql>().await } )*}
        mod postgres {$( #[tokio::test(flavor = "multi_thread")] async fn $law() { super::$law::<super::Postgres>().await } )*}
        mod sqlite {$( #[tokio::test(flavor = "multi_thread")] async fn $law() { super::$law::<super::Sqlite>().await } )*}
    };
}

on_each!(
    what_commits_is_published_and_what_rolls_back_is_not,
    several_relays_publish_each_event_once,
    an_event_that_was_not_published_is_tried_again_under_the_same_id,
    events_that_can_not_be_stored_are_refused,
    what_a_broker_could_not_take_is_refused_when_it_is_put,
    events_of_one_key_are_published_in_the_order_in_which_they_were_written,
    an_event_that_fails_holds_up_those_of_its_key_and_no_others,
    a_panic_is_the_failure_of_one_event_and_ends_no_relay,
    an_event_that_is_never_through_holds_up_no_other,
    an_event_that_can_not_be_read_holds_up_no_other,
    no_hold_is_so_long_that_an_event_is_lost_with_its_relay,
    an_outbox_of_an_older_release_is_migrated_with_what_is_in_it,
);

async fn what_commits_is_published_and_what_rolls_back_is_not<DB: Served>() {
    let (pool, outbox, topic) = open::<DB>().await;
    let kept = Event::new(&topic, vec![0, 159, 146, 150]).id("kept").header("tenant", "äöü");
    put(&pool, &outbox, &kept).await;
    let mut tx = pool.begin().await.unwrap();
    outbox.put(&mut tx, &Event::new(&topic, "").id("undone")).await.unwrap();
    tx.rollback().await.unwrap();
    let seen: Arc<Mutex<Vec<Event>>> = Arc::default();
    let all = Arc::clone(&seen);
    let relay = Relay::new(outbox, move |event: Event| {
        all.lock().unwrap().push(event);
        async { Ok(()) }
    });
    assert_eq!(relay.once().await.unwrap(), 1);
    assert_eq!(*seen.lock().unwrap(), [kept]);
}

async fn several_relays_publish_each_event_once<DB: Served>() {
    let (pool, outbox, topic) = open::<DB>().await;
    let wanted: Vec<String> = (10..70).map(|n| format!("{topic}-{n}")).collect();
    for id in &wanted {
        put(&pool, &outbox, &Event::new(&topic, "x").id(id)).await;
    }
    let broker = Broker::default();
    let relays: Vec<_> = (0..3).map(|_| relay(&outbox, &broker).batch(7).start()).collect();
    emptied(&outbox).await;
    stop(relays).await;
    // Without keys they have no order.
    let mut published = broker.of(None);
    published.sort();
    assert_eq!(published, wanted);
}

async fn stop(relays: Vec<Relaying>) {
    for relay in relays {
        relay.shutdown().await;
    }
}

async fn an_event_that_was_not_published_is_tried_again_under_the_same_id<DB: Served>() {
    let (pool, outbox, topic) = open::<DB>().await;
    let broker = Broker::default();
    let failing = broker.clone();
    let relay = Relay::new(outbox.clone(), move |event: Event| {
        let first = failing.events().is_empty();
        failing.take(&event);
        async move { if first { Err("the broker is down".into()) } else { Ok(()) } }
    });
    put(&pool, &outbox, &Event::new(&topic, "x").id("again")).await;
    let relaying = relay.every(Duration::from_millis(50)).start();
    emptied(&outbox).await;
    relaying.shutdown().await;
    assert_eq!(broker.of(None), ["again", "again"]);
}

/// A transaction of its own for each, many keys side by side, three relays with small batches, and a broker that is slow and fails
/// now and then.
async fn events_of_one_key_are_published_in_the_order_in_which_they_were_written<DB: Served>() {
    let (pool, outbox, topic) = open::<DB>().await;
    let keys = ["a", "b", "c"];
    let broker = Broker::default();
    let start = || {
        let (broker, tries) = (broker.clone(), Arc::new(Mutex::new(0_u32)));
        let relay = Relay::new(outbox.clone(), move |event: Event| {
            let (broker, tries) = (broker.clone(), Arc::clone(&tries));
            async move {
                let n = {
                    let mut tries = tries.lock().unwrap();
                    *tries += 1;
                    *tries
                };
                tokio::time::sleep(Duration::from_millis(u64::from(n * 7 % 5))).await;
                if n == 5 {
                    return Err("the broker is down for a moment".into());
                }
                broker.take(&event);
                Ok(())
            }
        });
        relay.batch(4).every(Duration::from_millis(20)).start()
    };
    let id = |n: u32| format!("{n:02}");
    let write = async |from: u32, to: u32| {
        for n in from..to {
            for key in keys {
                put(&pool, &outbox, &Event::new(&topic, "x").id(id(n)).key(key)).await;
            }
        }
    };
    write(0, 8).await;
    let relays: Vec<_> = (0..3).map(|_| start()).collect();
    write(8, 16).await;
    emptied(&outbox).await;
    stop(relays).await;
    let wanted: Vec<String> = (0..16).map(id).collect();
    for key in keys {
        assert_eq!(broker.of(Some(key)), wanted, "{key}");
    }
}

/// A relay whose broker never takes events that say so.
fn picky<DB: Database>(outbox: &Outbox<DB>, broker: &Broker) -> Relay<DB> {
    let broker = broker.clone();
    let publish = move |event: Event| {
        assert_ne!(event.payload(), "panic at once", "as it should");
        let broker = broker.clone();
        async move {
            match &event.payload()[..] {
                b"fail" => return Err("it is too large".into()),
                b"panic" => panic!("as it should"),
                b"hang" => std::future::pending().await,
                _ => broker.take(&event),
            }
            Ok(())
        }
    };
    Relay::new(outbox.clone(), publish).every(Duration::from_millis(20))
}

async fn an_event_that_fails_holds_up_those_of_its_key_and_no_others<DB: Served>() {
    let (pool, outbox, topic) = open::<DB>().await;
    let event = |id: &str, says: &'static str| Event::new(&topic, says).id(id);
    for event in [
        event("a1", "x").key("a"),
        event("a2", "fail").key("a"),
        event("b1", "x").key("b"),
        event("a3", "x").key("a"),
        event("alone", "fail"),
        event("b2", "x").key("b"),
        event("free", "x"),
    ] {
        put(&pool, &outbox, &event).await;
    }
    let broker = Broker::default();
    let relaying = picky(&outbox, &broker).batch(3).start();
    broker.has(4).await;
    // It has looked again at what failed by the time that this one is through.
    put(&pool, &outbox, &event("b3", "x").key("b")).await;
    broker.has(5).await;
    relaying.shutdown().await;
    assert_eq!(broker.of(Some("a")), ["a1"]);
    assert_eq!(broker.of(Some("b")), ["b1", "b2", "b3"]);
    assert_eq!(broker.of(None), ["free"]);
    assert_eq!(outbox.waiting().await.unwrap(), 3, "what failed is still there, and what is behind it");
}

async fn a_panic_is_the_failure_of_one_event_and_ends_no_relay<DB: Served>() {
    let (pool, outbox, topic) = open::<DB>().await;
    for says in ["panic", "x", "panic at once", "x"] {
        put(&pool, &outbox, &Event::new(&topic, says)).await;
    }
    let broker = Broker::default();
    let relaying = picky(&outbox, &broker).start();
    broker.has(2).await;
    put(&pool, &outbox, &Event::new(&topic, "x")).await;
    broker.has(3).await;
    relaying.shutdown().await;
    assert_eq!(outbox.waiting().await.unwrap(), 2);
}

async fn an_event_that_is_never_through_holds_up_no_other<DB: Served>() {
    let (pool, outbox, topic) = open::<DB>().await;
    put(&pool, &outbox, &Event::new(&topic, "hang")).await;
    let broker = Broker::default();
    // Longer in hand than this test takes.
    let relaying = picky(&outbox, &broker).batch(2).hold(Duration::from_secs(600)).start();
    for n in 0..5 {
        put(&pool, &outbox, &Event::new(&topic, "x")).await;
        broker.has(n + 1).await;
    }
    drop(relaying);
    assert!(outbox.waiting().await.unwrap() >= 1);
}

async fn an_event_that_can_not_be_read_holds_up_no_other<DB: Served>()
where
    for<'c> &'c Pool<DB>: Executor<'c, Database = DB>,
{
    let (pool, outbox, topic) = open::<DB>().await;
    put(&pool, &outbox, &Event::new(&topic, "x").id("damaged").key("k")).await;
    run(&pool, format!("UPDATE {topic} SET headers = topic")).await;
    put(&pool, &outbox, &Event::new(&topic, "x").id("behind").key("k")).await;
    put(&pool, &outbox, &Event::new(&topic, "x").id("whole").key("l")).await;
    let broker = Broker::default();
    let relay = relay(&outbox, &broker);
    assert_eq!(relay.once().await.unwrap(), 1);
    assert_eq!(relay.once().await.unwrap(), 0);
    assert_eq!(broker.of(Some("l")), ["whole"]);
    assert_eq!(outbox.waiting().await.unwrap(), 2, "it is not lost either");
}

async fn run<DB: Database>(pool: &Pool<DB>, sql: String)
where
    for<'c> &'c Pool<DB>: Executor<'c, Database = DB>,
{
    pool.execute(AssertSqlSafe(sql)).await.unwrap();
}

async fn no_hold_is_so_long_that_an_event_is_lost_with_its_relay<DB: Served>()
where
    for<'c> &'c Pool<DB>: Executor<'c, Database = DB>,
{
    let (pool, outbox, topic) = open::<DB>().await;
    put(&pool, &outbox, &Event::new(&topic, "hang")).await;
    let broker = Broker::default();
    let dies = picky(&outbox, &broker).hold(Duration::MAX);
    let died = tokio::time::timeout(Duration::from_secs(1), dies.once()).await;
    assert!(died.is_err(), "it was stopped half-way");
    // As if two hours had gone by.
    run(&pool, format!("UPDATE {topic} SET not_before = not_before - 7200000000, payload = id")).await;
    let relay = relay(&outbox, &broker).hold(Duration::MAX).every(Duration::MAX);
    assert_eq!(relay.once().await.unwrap(), 1);
    // One that an older release took for 73,000 years, or that was taken before the clock was set back.
    for ages in ["2305843009213693951", "created_at + 86400000000"] {
        put(&pool, &outbox, &Event::new(&topic, "x")).await;
        run(&pool, format!("UPDATE {topic} SET not_before = {ages}")).await;
        assert_eq!(relay.once().await.unwrap(), 1, "{ages}");
    }
}

/// The shipped SQL of a release that knew no keys.
fn without_keys<DB: Database>() -> String {
    let shipped = match std::any::type_name::<DB>() {
        name if name.ends_with("MySql") => include_str!("../migrations/mysql/outbox.sql"),
        name if name.ends_with("Postgres") => include_str!("../migrations/postgres/outbox.sql"),
        _ => include_str!("../migrations/sqlite/outbox.sql"),
    };
    let lines: Vec<&str> = shipped.lines().filter(|line| !line.contains("event_key")).collect();
    lines.join("\n").replace(",\n)", "\n)")
}

async fn an_outbox_of_an_older_release_is_migrated_with_what_is_in_it<DB: Served>()
where
    for<'c> &'c Pool<DB>: Executor<'c, Database = DB>,
{
    let store = common::open::<DB>().await;
    let (pool, table) = (store.pool().clone(), common::table());
    let sql = without_keys::<DB>().replace("onlyonce_outbox", &table);
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.unwrap();
    let insert = "(id, topic, payload, headers, attempts, not_before, created_at)";
    run(&pool, format!("INSERT INTO {table} {insert} VALUES ('old', 't', 'x', '{{}}', 0, 0, 0)")).await;
    let outbox = Outbox::new(pool.clone()).table(&table).unwrap();
    for _ in 0..2 {
        outbox.migrate().await.unwrap();
    }
    put(&pool, &outbox, &Event::new("t", "x").id("new").key("k")).await;
    let broker = Broker::default();
    assert_eq!(relay(&outbox, &broker).once().await.unwrap(), 2);
    assert_eq!((broker.of(None), broker.of(Some("k"))), (vec!["old".to_owned()], vec!["new".to_owned()]));
}

async fn what_a_broker_could_not_take_is_refused_when_it_is_put<DB: Served>() {
    let (pool, outbox, topic) = open::<DB>().await;
    let event = || Event::new(&topic, "x");
    let refused = [
        event().header("my header", "x"),
        event().header("", "x"),
        event().header("naïve", "x"),
        event().header("a:b", "x"),
        event().header("nul\0", "x"),
        event().header("n".repeat(256), "x"),
        event().header("line", "a\nb"),
        event().header("line", "a\rb"),
        event().header("nul", "a\0b"),
        event().header("Nats-Rollup", "all"),
        event().header("nats-msg-id", "another"),
        event().header("Onlyonce-Message-Id", "another"),
        event().header("large", "x".repeat(70_000)),
        event().id("a\nb"),
        event().id(" a"),
        event().id("a\0"),
        event().key(""),
        event().key("k".repeat(256)),
        event().key("a\rb"),
        Event::new("two words", "x"),
        Event::new("line\n", "x"),
        Event::new("nul\0", "x"),
        Event::new("orders..paid", "x"),
        Event::new(".orders", "x"),
        Event::new("orders.", "x"),
        Event::new("orders.*", "x"),
        Event::new("orders.>", "x"),
        Event::new("t".repeat(256), "x"),
    ];
    let mut tx = pool.begin().await.unwrap();
    for event in refused {
        let why = outbox.put(&mut tx, &event).await;
        assert!(why.is_err(), "{event:?} {:?}", event.headers().collect::<Vec<_>>());
    }
    // What is odd but can be published everywhere.
    let odd = event()
        .id("ä ö/ü")
        .key("ß")
        .header("empty", "")
        .header("a.b_c!", "\t ä \u{1F980}")
        .header("x", "x".repeat(60_000));
    outbox.put(&mut tx, &odd).await.unwrap();
    outbox
        .put(&mut tx, &Event::new("t".repeat(255), "").id("i".repeat(255)).key("k".repeat(255)))
        .await
        .unwrap();
}

async fn events_that_can_not_be_stored_are_refused<DB: Served>() {
    let (pool, outbox, topic) = open::<DB>().await;
    let mut tx = pool.begin().await.unwrap();
    for event in
        [Event::new(&topic, "x").id(""), Event::new(&topic, "x").id("i".repeat(256)), Event::new("", "x")]
    {
        let why = outbox.put(&mut tx, &event).await.unwrap_err().to_string();
        assert!(why.contains("bytes; send 1 to"), "{why}");
    }
}
