//! In the business transaction: exactly one effect each, none lost, none stuck, whoever is killed; and the whole chain from a
//! request over an outbox to a consumer.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::victims::{self, Act, Plan};
use common::{Stage, Trouble, quick, soon, stop, text, unique, until, url_in};
use onlyonce_consumer::{Batch, Consumer, Job, NatsPublisher, RabbitPublisher, Retries};
use onlyonce_core::{Idempotency, Refusal, Settings};
use onlyonce_sql::outbox::{Event, Outbox, Relay, Relaying};
use onlyonce_sql::{InTransaction as _, Postgres, PostgresStore, SqliteStore, Tx};
use sqlx::{AssertSqlSafe, PgPool, Row as _};

/// A database of its own: a schema, with the effects as a table that allows a second one.
#[derive(Clone)]
struct World {
    schema: String,
    pool: PgPool,
    once: Idempotency,
    outbox: Outbox<Postgres>,
}

impl World {
    async fn new() -> Self {
        let schema = unique("tx").replace('-', "_");
        let admin = PgPool::connect(&url_in("ONLYONCE_TEST_POSTGRES_URL")).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).execute(&admin).await.unwrap();
        let world = Self::of(&schema).await;
        world.outbox.migrate().await.unwrap();
        sqlx::raw_sql(
            "CREATE TABLE effects (message TEXT NOT NULL); CREATE TABLE orders (name TEXT NOT NULL); CREATE SEQUENCE runs",
        )
        .execute(&world.pool)
        .await
        .unwrap();
        world
    }

    async fn of(schema: &str) -> Self {
        let url = format!("{}?options=-csearch_path%3D{schema}", url_in("ONLYONCE_TEST_POSTGRES_URL"));
        let pool = sqlx::postgres::PgPoolOptions::new().max_connections(8).connect(&url).await.unwrap();
        let store = PostgresStore::from_pool(pool.clone()).migrate().open().await.unwrap();
        let settings = Settings { retain: Duration::from_secs(3600), ..Settings::default() };
        let once = store.same_transaction().settings(settings).build().unwrap();
        Self { schema: schema.into(), outbox: Outbox::new(pool.clone()), pool, once }
    }

    /// The effect is a row in the transaction that the consumer lends.
    fn consumer(&self) -> Consumer {
        let act = Act::of_this_process();
        let handler = move |job: Job| {
            let act = act.clone();
            async move {
                let message = text(&job);
                let mut tx: Tx<Postgres> = Tx::of(job.permit()).map_err(|_| Trouble::DatabaseDown)?;
                act.before_the_effect(&message).await;
                // A sequence is not rolled back: it counts how often the effect was begun.
                let insert =
                    sqlx::query("INSERT INTO effects SELECT $1 FROM (SELECT nextval('runs')) AS run");
                insert.bind(&message).execute(&mut *tx).await.map_err(|_| Trouble::DatabaseDown)?;
                act.after_the_effect(&message).await;
                Ok::<(), Trouble>(())
            }
        };
        Consumer::new(self.once.clone(), "stock", "decrement", handler)
            .retries(quick())
            .concurrency(4)
            .replay_horizon(Duration::from_secs(60))
    }

    /// How often a handler got to its effect, also where that was undone.
    async fn runs(&self) -> i64 {
        let last = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM runs";
        sqlx::query(last).fetch_one(&self.pool).await.unwrap().get(0)
    }

    async fn effects(&self) -> Vec<(String, i64)> {
        let counted = "SELECT message, count(*) FROM effects GROUP BY message ORDER BY message";
        let rows = sqlx::query(counted).fetch_all(&self.pool).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    async fn assert_one_each(&self, names: impl Iterator<Item = String>) {
        let effects: BTreeMap<String, i64> = self.effects().await.into_iter().collect();
        let wanted: BTreeMap<String, i64> = names.map(|name| (name, 1)).collect();
        let twice: Vec<_> = effects.iter().filter(|(name, n)| wanted.get(*name) != Some(*n)).collect();
        let lost: Vec<_> = wanted.keys().filter(|name| !effects.contains_key(*name)).collect();
        assert!(twice.is_empty() && lost.is_empty(), "more than one effect: {twice:?}; lost: {lost:?}");
    }
}

/// Where everything is, for all processes.
struct Scene {
    broker: String,
    queue: String,
    world: World,
}

impl Scene {
    async fn of(stage: &Stage) -> Self {
        Self { broker: stage.url(), queue: stage.name(), world: World::new().await }
    }

    async fn of_victim([broker, queue, schema]: [String; 3]) -> Self {
        Self { broker, queue, world: World::of(&schema).await }
    }

    fn told(&self) -> String {
        format!("{}|{}|{}", self.broker, self.queue, self.world.schema)
    }

    fn topic(&self) -> String {
        if self.broker.starts_with("nats") { format!("{}.paid", self.queue) } else { self.queue.clone() }
    }

    /// From the outbox to the broker.
    async fn relay(&self) -> Relaying {
        let outbox = self.world.outbox.clone();
        let relay = if self.broker.starts_with("nats") {
            let publisher = NatsPublisher::connect(&self.broker).await.unwrap();
            Relay::new(outbox, move |event: Event| {
                let publisher = publisher.clone();
                async move {
                    let id = event.message_id();
                    Ok(publisher.publish(event.topic(), id, event.headers(), event.payload()).await?)
                }
            })
        } else {
            let publisher = Arc::new(RabbitPublisher::new(&self.broker, ""));
            Relay::new(outbox, move |event: Event| {
                let publisher = Arc::clone(&publisher);
                async move {
                    let id = event.message_id();
                    Ok(publisher.publish(event.topic(), id, event.headers(), event.payload()).await?)
                }
            })
        };
        // What a killed relay had in hand is another's soon.
        relay.batch(20).hold(Duration::from_secs(2)).every(Duration::from_millis(50)).start()
    }
}

async fn is_victim(told: [String; 3]) {
    let scene = Scene::of_victim(told).await;
    // Only chains have something in their outbox, and none of them is over Kafka.
    let _relaying = if scene.broker.contains("//") { Some(scene.relay().await) } else { None };
    victims::consume(|| scene.world.consumer(), &scene.broker, &scene.queue).await;
}

macro_rules! on_each {
    ($($name:ident $stage:ident $do:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            match victims::told() {
                Some(told) => is_victim(told).await,
                None => $do(stringify!($name), Stage::$stage().await).await,
            }
        }
    )*};
}

on_each! {
    rabbitmq_consumers_killed_at_random_have_exactly_one_effect_in_the_transaction rabbitmq killed_at_random;
    nats_consumers_killed_at_random_have_exactly_one_effect_in_the_transaction nats killed_at_random;
    kafka_consumers_killed_at_random_have_exactly_one_effect_in_the_transaction kafka killed_at_random;
    the_chain_over_an_outbox_and_rabbitmq_has_one_effect_at_its_end_whoever_is_killed rabbitmq chain;
    the_chain_over_an_outbox_and_nats_has_one_effect_at_its_end_whoever_is_killed nats chain;
    a_refusal_in_the_transaction_undoes_what_it_did_and_is_acked rabbitmq refusal;
    a_system_error_in_the_transaction_undoes_what_it_did_and_is_tried_again nats system_error;
    a_database_that_is_away_is_no_failure_of_a_message_on_rabbitmq rabbitmq outage;
    a_database_that_is_away_is_no_failure_of_a_message_on_nats nats outage;
    a_database_that_is_away_is_no_failure_of_a_message_on_kafka kafka outage;
    batches_in_transactions_need_no_more_connections_than_there_are rabbitmq batches;
}

async fn killed_at_random(test: &str, stage: Stage) {
    let (plan, scene) = (Plan::on(&stage), Scene::of(&stage).await);
    let publish = async |name: String| stage.publish(Some(&name), &name).await;
    plan.kill_while_they_flow(test, &scene.told(), publish).await;
    stage.drain(|| scene.world.consumer()).await;
    judge(plan, &scene, &stage).await;
}

/// Exactly one effect each, nothing in doubt, though kills undid some that had been begun.
async fn judge(plan: Plan, scene: &Scene, stage: &Stage) {
    let Plan { messages, kills } = plan;
    let (runs, all) = (scene.world.runs().await, plan.all().count() as i64);
    scene.world.assert_one_each(plan.all()).await;
    assert_eq!(stage.dead().await, [], "nothing is ever in doubt here");
    println!("{kills} kills, {messages} messages twice: {all} effects, {runs} begun, none parked");
    assert!(runs > all, "no kill undid an effect: nothing was shown");
}

/// Each request is sent twice; relays and consumers are killed; at the end there is one effect a request.
async fn chain(test: &str, stage: Stage) {
    let (plan, scene) = (Plan::on(&stage), Scene::of(&stage).await);
    let topic = scene.topic();
    let request = async |name: String| assert_eq!(pay(&scene.world, &topic, &name).await.unwrap(), 1);
    plan.kill_while_they_flow(test, &scene.told(), request).await;
    let relaying = scene.relay().await;
    let published = async {
        while scene.world.outbox.waiting().await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    soon("take what is in the outbox", published).await;
    stage.drain(|| scene.world.consumer()).await;
    relaying.shutdown().await;
    let counted = sqlx::query("SELECT count(*) FROM orders").fetch_one(&scene.world.pool).await.unwrap();
    assert_eq!(counted.get::<i64, _>(0), plan.all().count() as i64, "one order a request");
    judge(plan, &scene, &stage).await;
}

#[derive(Debug)]
struct Failed;

impl From<Refusal> for Failed {
    fn from(_: Refusal) -> Self {
        Self
    }
}

impl onlyonce_core::Classify for Failed {
    fn classify(&self) -> onlyonce_core::Class {
        onlyonce_core::Class::Release
    }

    fn save(&self) -> Result<onlyonce_core::Bytes, onlyonce_core::codec::CodecError> {
        Ok(onlyonce_core::Bytes::new())
    }

    fn revive(_: onlyonce_core::Bytes) -> Result<Self, onlyonce_core::codec::CodecError> {
        Ok(Self)
    }
}

/// A request: the order, its record and its event commit together.
async fn pay(world: &World, topic: &str, order: &str) -> Result<u32, Failed> {
    let (outbox, topic, name) = (world.outbox.clone(), topic.to_owned(), order.to_owned());
    let call = world.once.call("pay", order);
    call.in_transaction(move |mut tx: Tx<Postgres>| async move {
        let insert = sqlx::query("INSERT INTO orders (name) VALUES ($1)").bind(&name);
        insert.execute(&mut *tx).await.map_err(|_| Failed)?;
        outbox.put(&mut tx, &Event::new(topic, name)).await.map_err(|_| Failed)?;
        Ok(1)
    })
    .await
}

async fn refusal(_: &str, stage: Stage) {
    let world = World::new().await;
    let handler = |job: Job| async move {
        let mut tx: Tx<Postgres> = Tx::of(job.permit()).map_err(|_| Trouble::DatabaseDown)?;
        sqlx::query("INSERT INTO effects VALUES ('undone')").execute(&mut *tx).await.unwrap();
        Err::<(), _>(Trouble::OutOfStock)
    };
    let consumer = Consumer::new(world.once.clone(), "stock", "decrement", handler).retries(quick());
    let consuming = consumer.start(stage.broker()).await.unwrap();
    stage.publish(Some("m"), "m").await;
    until(&consuming, |stats| stats.refused == 1).await;
    stage.publish(Some("m"), "m").await;
    until(&consuming, |stats| stats.duplicates == 1).await;
    stop(consuming).await;
    assert_eq!(world.effects().await, []);
    assert_eq!(stage.left().await, 0);
}

async fn system_error(_: &str, stage: Stage) {
    let world = World::new().await;
    let tries = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let handler = move |job: Job| {
        let n = counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move {
            let mut tx: Tx<Postgres> = Tx::of(job.permit()).map_err(|_| Trouble::DatabaseDown)?;
            sqlx::query("INSERT INTO effects VALUES ('m')").execute(&mut *tx).await.unwrap();
            assert_ne!(n, 0, "a panic undoes it too");
            if n == 1 { Err(Trouble::DatabaseDown) } else { Ok(()) }
        }
    };
    let consumer = Consumer::new(world.once.clone(), "stock", "decrement", handler).retries(quick());
    let consuming = consumer.start(stage.broker()).await.unwrap();
    stage.publish(Some("m"), "m").await;
    until(&consuming, |stats| stats.done == 1).await;
    stop(consuming).await;
    assert_eq!(tries.load(std::sync::atomic::Ordering::SeqCst), 3);
    assert_eq!(world.effects().await, [("m".to_owned(), 1)]);
}

/// What nobody could begin is delayed however often; a failure after that is the first.
async fn outage(_: &str, stage: Stage) {
    let world = World::new().await;
    let rename = async |from: &str, to: &str| {
        let rename = format!("ALTER TABLE {from} RENAME TO {to}");
        sqlx::raw_sql(AssertSqlSafe(rename)).execute(&world.pool).await.unwrap();
    };
    let tries = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let handler = move |_: Job| {
        let n = counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        std::future::ready(if n < 2 { Err(Trouble::DatabaseDown) } else { Ok(()) })
    };
    let retries = Retries { limit: 3, ..quick() };
    let consumer = Consumer::new(world.once.clone(), "stock", "decrement", handler).retries(retries);
    let consuming = consumer.start(stage.broker()).await.unwrap();
    rename("onlyonce_records", "away").await;
    stage.publish(Some("m"), "m").await;
    until(&consuming, |stats| stats.delayed >= 4).await;
    assert_eq!(tries.load(std::sync::atomic::Ordering::SeqCst), 0);
    rename("away", "onlyonce_records").await;
    until(&consuming, |stats| stats.done + stats.dead == 1).await;
    let stats = consuming.stats();
    stop(consuming).await;
    assert_eq!((stats.done, stats.failed), (1, 2), "{stats:?}");
    // And failures are still counted: three of them are too many.
    let fails = |_: Job| async { Err::<(), _>(Trouble::DatabaseDown) };
    let consumer = Consumer::new(world.once.clone(), "stock", "decrement", fails).retries(retries);
    let consuming = consumer.start(stage.broker()).await.unwrap();
    stage.publish(Some("bad"), "bad").await;
    until(&consuming, |stats| stats.dead == 1).await;
    let stats = consuming.stats();
    stop(consuming).await;
    assert_eq!((stats.failed, stats.done), (2, 0), "{stats:?}");
}

/// With fewer connections than messages in hand, those that wait for one hold none.
async fn batches(_: &str, stage: Stage) {
    let world = World::new().await;
    let url = format!("{}?options=-csearch_path%3D{}", url_in("ONLYONCE_TEST_POSTGRES_URL"), world.schema);
    // A claim that waits for a connection waits for longer than this test.
    let few =
        sqlx::postgres::PgPoolOptions::new().max_connections(2).acquire_timeout(Duration::from_secs(600));
    let few = few.connect(&url).await.unwrap();
    let postgres = PostgresStore::from_pool(few).open().await.unwrap().same_transaction().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = format!("sqlite://{}", directory.path().join("shop.db").display());
    let sqlite =
        SqliteStore::builder(&file).migrate().open().await.unwrap().same_transaction().build().unwrap();
    for (once, name) in [(postgres, "postgres"), (sqlite, "sqlite")] {
        let handler = |jobs: Vec<Job>| async move { jobs.iter().map(|_| Ok::<(), Trouble>(())).collect() };
        let batch = Batch { max: 4, linger: Duration::from_millis(200) };
        for n in 0..16 {
            stage.publish(Some(&format!("{name}-{n}")), name).await;
        }
        let consumer =
            Consumer::batched(once, "stock", "decrement", batch, handler).retries(quick()).concurrency(4);
        let consuming = consumer.start(stage.broker()).await.unwrap();
        until(&consuming, |stats| stats.done == 16).await;
        let stats = consuming.stats();
        stop(consuming).await;
        assert_eq!((stats.delayed, stats.failed), (0, 0), "{name}: {stats:?}");
    }
}
