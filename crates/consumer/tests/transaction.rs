//! In the business transaction: exactly one effect each, none lost, none stuck, whoever is killed; and the whole chain from a
//! request over an outbox to a consumer.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::{Stage, Trouble, quick, stop, unique, until, url_in};
use onlyonce_consumer::adapter::Connect;
use onlyonce_consumer::{Consumer, Job, Nats, NatsPublisher, RabbitMq, RabbitPublisher};
use onlyonce_core::{Idempotency, Refusal, Settings};
use onlyonce_sql::outbox::{Event, Outbox, Relay, Relaying};
use onlyonce_sql::{InTransaction as _, Postgres, PostgresStore, Tx};
use sqlx::{AssertSqlSafe, PgPool, Row as _};

const VICTIM: &str = "ONLYONCE_TX_VICTIM";

/// How many messages and kills: few in a test, many in a soak.
fn counts() -> (u32, u32) {
    match std::env::var("ONLYONCE_CONSUMER_KILLS").ok().and_then(|kills| kills.parse().ok()) {
        Some(kills) => (kills * 100, kills),
        None => (200, 8),
    }
}

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
            "CREATE TABLE effects (message TEXT NOT NULL); CREATE TABLE orders (name TEXT NOT NULL)",
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
        let handler = |job: Job| async move {
            let message = String::from_utf8(job.message().payload().to_vec()).unwrap();
            let mut tx: Tx<Postgres> = Tx::of(job.permit()).map_err(|_| Trouble::DatabaseDown)?;
            let insert = sqlx::query("INSERT INTO effects (message) VALUES ($1)").bind(message);
            insert.execute(&mut *tx).await.map_err(|_| Trouble::DatabaseDown)?;
            tokio::time::sleep(Duration::from_millis(3)).await;
            Ok::<(), Trouble>(())
        };
        Consumer::new(self.once.clone(), "stock", "decrement", handler)
            .retries(quick())
            .concurrency(4)
            .replay_horizon(Duration::from_secs(60))
    }

    async fn effects(&self) -> Vec<(String, i64)> {
        let counted = "SELECT message, count(*) FROM effects GROUP BY message ORDER BY message";
        let rows = sqlx::query(counted).fetch_all(&self.pool).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    async fn assert_one_each(&self, names: impl Iterator<Item = String>) {
        let mut wanted: Vec<(String, i64)> = names.map(|name| (name, 1)).collect();
        wanted.sort();
        let mut effects = self.effects().await;
        effects.sort();
        assert_eq!(effects, wanted);
    }
}

fn names(n: u32) -> impl Iterator<Item = String> {
    (0..n).map(|n| format!("message-{n}"))
}

/// What a victim has to know.
#[derive(Clone)]
struct Scene {
    broker: String,
    queue: String,
    schema: String,
}

impl Scene {
    fn of_victim() -> Option<Self> {
        let told = std::env::var(VICTIM).ok()?;
        let [broker, queue, schema] = told.split('|').collect::<Vec<_>>().try_into().ok()?;
        Some(Self { broker: broker.into(), queue: queue.into(), schema: schema.into() })
    }

    fn victim(&self, test: &str) -> Child {
        let Self { broker, queue, schema } = self;
        Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(VICTIM, format!("{broker}|{queue}|{schema}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn connect(&self) -> Box<dyn Connect> {
        let Self { broker, queue, .. } = self;
        match broker.split(':').next().unwrap() {
            "amqp" => Box::new(RabbitMq::new(broker, queue).dead_letter(format!("{queue}.dead"))),
            "nats" => Box::new(
                Nats::new(broker, queue)
                    .subject(format!("{queue}.paid"))
                    .dead_letter(format!("dead.{queue}"))
                    .ack_wait(common::nats::ACK_WAIT),
            ),
            _ => Box::new(common::kafka::broker(broker, queue)),
        }
    }

    fn topic(&self) -> String {
        if self.broker.starts_with("nats") { format!("{}.paid", self.queue) } else { self.queue.clone() }
    }

    /// A relay for the outbox of this world, to the broker of this scene.
    async fn relay(&self, world: &World) -> Relaying {
        let outbox = world.outbox.clone();
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

async fn is_victim() {
    if let Some(scene) = Scene::of_victim() {
        let world = World::of(&scene.schema).await;
        let consuming = world.consumer().start(scene.connect()).await;
        let _relaying = if scene.broker.contains("//") { Some(scene.relay(&world).await) } else { None };
        if let Ok(_consuming) = consuming {
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        std::process::exit(0);
    }
}

macro_rules! on_each {
    ($($name:ident $stage:ident $do:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            is_victim().await;
            $do(stringify!($name), Stage::$stage().await).await;
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
}

async fn kill_some(scene: &Scene, test: &str, kills: u32) {
    for _ in 0..kills {
        let mut victim = scene.victim(test);
        // From before it is connected until well into its work.
        tokio::time::sleep(Duration::from_millis(rand::random_range(300..2_500))).await;
        victim.kill().unwrap();
        victim.wait().unwrap();
    }
}

async fn killed_at_random(test: &str, stage: Stage) {
    let (messages, kills) = counts();
    let world = World::new().await;
    let scene = Scene { broker: stage.url(), queue: stage.name(), schema: world.schema.clone() };
    let publishing = async {
        for _ in 0..2 {
            for name in names(messages) {
                stage.publish(Some(&name), &name).await;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    };
    tokio::join!(publishing, kill_some(&scene, test, kills));
    let last = world.consumer().start(stage.broker()).await.unwrap();
    drained(&stage, &last).await;
    stop(last).await;
    world.assert_one_each(names(messages)).await;
    assert_eq!(stage.dead().await, [], "nothing is ever in doubt here");
}

async fn drained(stage: &Stage, last: &onlyonce_consumer::Consuming) {
    let mut before = last.stats();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = last.stats();
        if now == before && stage.left().await == 0 {
            return;
        }
        before = now;
    }
}

/// Each request is sent twice; relays and consumers are killed; at the end there is one effect a request.
async fn chain(test: &str, stage: Stage) {
    let (requests, kills) = (counts().0 / 2, counts().1);
    let world = World::new().await;
    let scene = Scene { broker: stage.url(), queue: stage.name(), schema: world.schema.clone() };
    let requesting = async {
        for _ in 0..2 {
            for name in names(requests) {
                pay(&world, &scene.topic(), &name).await.unwrap();
            }
        }
    };
    tokio::join!(requesting, kill_some(&scene, test, kills));
    let relaying = scene.relay(&world).await;
    let last = world.consumer().start(stage.broker()).await.unwrap();
    while world.outbox.waiting().await.unwrap() > 0 {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    drained(&stage, &last).await;
    stop(last).await;
    relaying.shutdown().await;
    let orders: i64 = sqlx::query("SELECT count(*) FROM orders").fetch_one(&world.pool).await.unwrap().get(0);
    assert_eq!(orders, i64::from(requests), "one order a request");
    world.assert_one_each(names(requests)).await;
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
