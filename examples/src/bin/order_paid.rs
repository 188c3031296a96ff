//! Order paid → stock decremented, on a RabbitMQ or a NATS: each event is published twice, as queues will, and the stock goes
//! down once.
//!
//! `cargo run -p onlyonce-examples --bin order_paid -- amqp://guest:guest@localhost:5672/%2f`, or `nats://localhost:4222`.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use onlyonce::consumer::adapter::Connect;
use onlyonce::consumer::{Consumer, Job, Nats, NatsPublisher, RabbitMq, RabbitPublisher};
use onlyonce::{Classify, Idempotency, MemoryStore};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct OrderPaid {
    quantity: i64,
}

#[derive(Debug, Classify)]
enum StockError {
    #[keep]
    Malformed, // it will never be anything else: an answer
    #[keep]
    OutOfStock,
}

/// Takes from the stock. In real life this is a row in a database, or a call to a warehouse.
fn take(stock: &AtomicI64, job: &Job) -> Result<(), StockError> {
    let paid: OrderPaid = job.message().json().map_err(|_| StockError::Malformed)?;
    let less = |left: i64| (left >= paid.quantity).then_some(left - paid.quantity);
    stock.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).map_err(|_| StockError::OutOfStock)?;
    Ok(())
}

/// The two brokers of this example.
enum Publisher {
    Rabbit(Box<RabbitPublisher>),
    Nats(Box<NatsPublisher>),
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "nats://localhost:4222".to_owned());
    let name = format!("orders-{}", onlyonce::id::key());
    let topic = format!("{name}.paid");
    let (broker, publisher): (Box<dyn Connect>, Publisher) = if url.starts_with("nats") {
        let stream = Nats::new(&url, &name).subject(&topic).dead_letter(format!("dead.{name}")).declare();
        (Box::new(stream), Publisher::Nats(Box::new(NatsPublisher::connect(&url).await?)))
    } else {
        let queue = RabbitMq::new(&url, &topic).dead_letter(format!("{name}.dead")).declare();
        (Box::new(queue), Publisher::Rabbit(Box::new(RabbitPublisher::new(&url, ""))))
    };

    let stock = Arc::new(AtomicI64::new(10));
    let shared = Arc::clone(&stock);
    let once = Idempotency::new(MemoryStore::new());
    let consumer = Consumer::new(once, "stock", "decrement", move |job: Job| {
        let stock = Arc::clone(&shared);
        async move { take(&stock, &job) }
    });
    let consuming = consumer.replay_horizon(Duration::from_secs(3600)).start(broker).await?;

    let orders = [("order-1", 2), ("order-2", 3), ("order-3", 11)];
    for (id, quantity) in orders.into_iter().chain(orders) {
        let event = format!(r#"{{"quantity":{quantity}}}"#);
        match &publisher {
            Publisher::Rabbit(rabbit) => {
                rabbit.publish(&topic, id, [("sent-by", "shop")], event.as_bytes()).await?
            }
            Publisher::Nats(nats) => {
                nats.publish(&topic, id, [("sent-by", "shop")], event.as_bytes()).await?
            }
        }
    }
    while consuming.stats().done + consuming.stats().refused < 3 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // What was published second may still be on its way.
    tokio::time::sleep(Duration::from_millis(500)).await;
    consuming.shutdown(Duration::from_secs(10)).await;
    println!("10 in stock, 2 and 3 taken, 11 refused: {} left", stock.load(Ordering::SeqCst));
    Ok(())
}
