//! The outbox on the three databases: what commits is published, under one id, and what rolls back is not.
#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::Served;
use onlyonce_sql::outbox::{Event, Outbox, Relay};
use onlyonce_sql::{Database, MySql, Postgres, Sqlite};
use sqlx::Pool;

/// What was published: how often, by topic and id.
#[derive(Clone, Default)]
struct Broker(Arc<Mutex<BTreeMap<(String, String), u32>>>);

impl Broker {
    fn take(&self, event: &Event) {
        let key = (event.topic().to_owned(), event.message_id().to_owned());
        *self.0.lock().unwrap().entry(key).or_default() += 1;
    }

    fn of(&self, topic: &str) -> BTreeMap<String, u32> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|((t, _), _)| t == topic).map(|((_, id), n)| (id.clone(), *n)).collect()
    }
}

async fn open<DB: Served>() -> (Pool<DB>, Outbox<DB>, String) {
    let store = common::open::<DB>().await;
    let outbox = Outbox::new(store.pool().clone()).table(&common::table()).unwrap();
    outbox.migrate().await.unwrap();
    outbox.migrate().await.unwrap();
    (store.pool().clone(), outbox, common::table())
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
    for n in 0..60 {
        put(&pool, &outbox, &Event::new(&topic, "x").id(format!("{topic}-{n}"))).await;
    }
    let broker = Broker::default();
    let relays: Vec<_> = (0..3).map(|_| relay(&outbox, &broker).batch(7).start()).collect();
    for _ in 0..300 {
        if broker.of(&topic).len() == 60 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for relay in relays {
        relay.shutdown().await;
    }
    let published = broker.of(&topic);
    assert_eq!(published.len(), 60);
    assert_eq!(outbox.waiting().await.unwrap(), 0);
    assert!(published.values().all(|times| *times == 1), "{published:?}");
}

async fn an_event_that_was_not_published_is_tried_again_under_the_same_id<DB: Served>() {
    let (pool, outbox, topic) = open::<DB>().await;
    let broker = Broker::default();
    let (mine, failing) = (topic.clone(), broker.clone());
    let relay = Relay::new(outbox.clone(), move |event: Event| {
        let first = event.topic() == mine && failing.of(&mine).is_empty();
        failing.take(&event);
        async move { if first { Err("the broker is down".into()) } else { Ok(()) } }
    });
    put(&pool, &outbox, &Event::new(&topic, "x").id("again")).await;
    let relaying = relay.every(Duration::from_millis(50)).start();
    for _ in 0..300 {
        if broker.of(&topic).get("again") == Some(&2) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    relaying.shutdown().await;
    assert_eq!(broker.of(&topic).get("again"), Some(&2));
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
