//! The whole chain: request → transaction → event → consumer, with one effect at its end.
//!
//! Each request is sent twice, and so is each event; orders, events, records and the stock are in one file of SQLite.
//! `cargo run -p onlyonce-examples --bin outbox -- nats://localhost:4222`

use std::error::Error;
use std::time::Duration;

use onlyonce::consumer::{Consumer, Job, Nats, NatsPublisher};
use onlyonce::sql::outbox::{Event, Outbox, Relay};
use onlyonce::sql::{InTransaction as _, NoTx, Sqlite, SqliteStore, Tx};
use onlyonce::{Classify, Refusal};
use sqlx::Row as _;

#[derive(Debug, Classify)]
enum Failed {
    #[release]
    Database,
    #[release]
    NoTransaction,
    #[unknown]
    Refused,
}

impl From<Refusal> for Failed {
    fn from(_: Refusal) -> Self {
        Self::Refused
    }
}

impl From<NoTx> for Failed {
    fn from(_: NoTx) -> Self {
        Self::NoTransaction
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "nats://localhost:4222".to_owned());
    let name = format!("shop-{}", onlyonce::id::key());
    let topic = format!("{name}.paid");
    let file = std::env::temp_dir().join(format!("{name}.db"));
    let store = SqliteStore::builder(format!("sqlite://{}", file.display())).migrate().open().await?;
    let (once, pool) = (store.same_transaction().build()?, store.pool().clone());
    let tables = "CREATE TABLE orders (id TEXT); CREATE TABLE stock (left_over INTEGER); INSERT INTO stock VALUES (10)";
    sqlx::raw_sql(tables).execute(&pool).await?;
    let outbox = Outbox::new(pool.clone());
    outbox.migrate().await?;

    // The consumer: the stock goes down in the transaction in which the message is noted as handled.
    let consumer = Consumer::new(once.clone(), "stock", "decrement", |job: Job| async move {
        let mut tx: Tx<Sqlite> = Tx::of(job.permit())?;
        let less = sqlx::query("UPDATE stock SET left_over = left_over - 1");
        less.execute(&mut *tx).await.map(drop).map_err(|_| Failed::Database)
    });
    let stream = Nats::new(&url, &name).subject(&topic).dead_letter(format!("dead.{name}")).declare();
    let consuming = consumer.replay_horizon(Duration::from_secs(3600)).start(stream).await?;

    // The relay: publishes each event twice here, as one that dies between publishing and deleting would.
    let publisher = NatsPublisher::connect(&url).await?;
    let relay = Relay::new(outbox.clone(), move |event: Event| {
        let publisher = publisher.clone();
        async move {
            for copy in ["first", "second"] {
                // Under another id for the server, which would drop the copy by itself; ours is in the header.
                let headers = [("onlyonce-message-id", event.message_id())];
                let id = format!("{}-{copy}", event.message_id());
                publisher.publish(event.topic(), &id, headers, event.payload()).await?;
            }
            Ok(())
        }
    });
    let relaying = relay.start();

    // The requests: the order, its record and its event commit together.
    for order in ["order-1", "order-2", "order-3", "order-1", "order-2", "order-3"] {
        let (outbox, topic) = (outbox.clone(), topic.clone());
        let pay = once.call("pay", order).in_transaction(move |mut tx: Tx<Sqlite>| async move {
            let insert = sqlx::query("INSERT INTO orders VALUES (?)").bind(order);
            insert.execute(&mut *tx).await.map_err(|_| Failed::Database)?;
            outbox.put(&mut tx, &Event::new(topic, order)).await.map_err(|_| Failed::Database)?;
            Ok::<_, Failed>(order.to_owned())
        });
        pay.await.map_err(|failed| format!("{failed:?}"))?;
    }
    while consuming.stats().done + consuming.stats().duplicates < 6 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    relaying.shutdown().await;
    consuming.shutdown(Duration::from_secs(10)).await;
    let count = |sql: &'static str| {
        let pool = pool.clone();
        async move { Ok::<i64, sqlx::Error>(sqlx::query(sql).fetch_one(&pool).await?.get(0)) }
    };
    let (orders, left) =
        (count("SELECT count(*) FROM orders").await?, count("SELECT left_over FROM stock").await?);
    println!("6 requests, {orders} orders, 6 messages, {left} of 10 left in stock");
    std::fs::remove_file(file)?;
    Ok(())
}
