//! A payment under a lock and with idempotency, on Redis: `cargo run -p onlyonce-examples --bin locked_payment redis://localhost`.
//!
//! The two do different things. The record keeps *one* payment from happening twice, however often it is sent. The lock keeps
//! *different* things apart that touch the same order: here, two payments with different keys. And the fence lets the order
//! refuse a holder that stood still for so long that its lock is gone.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce::lock::{Held, LockError, Locks};
use onlyonce::redis::RedisStore;
use onlyonce::{Classify, Fence, Idempotency, Refusal};

#[derive(Debug, Classify)]
enum PayError {
    /// An answer: every retry gets it.
    #[keep]
    AlreadyPaid,
    /// Somebody else has the order for too long: nothing happened, a retry may run.
    #[release]
    Busy,
    /// The lock was lost before the order was changed: nothing happened either.
    #[release]
    TooLate,
    #[unknown]
    Refused(Refusal),
}

impl From<Refusal> for PayError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<LockError> for PayError {
    fn from(_: LockError) -> Self {
        Self::Busy
    }
}

/// The resource. A database would say `… WHERE id = 42 AND fence <= ?`.
#[derive(Debug, Default)]
struct Order {
    paid_by: Option<String>,
    charges: u32,
    fence: Option<Fence>,
}

impl Order {
    /// Lets in who has not been overtaken.
    fn open(&mut self, held: &Held) -> Result<&mut Self, PayError> {
        if self.fence > Some(held.fence()) {
            return Err(PayError::TooLate);
        }
        self.fence = Some(held.fence());
        Ok(self)
    }
}

#[derive(Clone)]
struct Shop {
    once: Idempotency,
    locks: Locks,
    order: Arc<Mutex<Order>>,
}

impl Shop {
    /// Pays order 42 with this card; `key` names the attempt of the client.
    async fn pay(&self, key: &str, card: &str) -> Result<String, PayError> {
        self.once.call("pay order 42", key).input(&card).run(self.charge(card)).await
    }

    async fn charge(&self, card: &str) -> Result<String, PayError> {
        let order = self.locks.key("order:42").wait(Duration::from_secs(30));
        order
            .run(|held| async move {
                let is_paid = self.order().open(&held)?.paid_by.is_some();
                if is_paid {
                    return Err(PayError::AlreadyPaid);
                }
                // The bank takes its time, and the lock is held meanwhile.
                tokio::time::sleep(Duration::from_millis(50)).await;
                let mut order = self.order();
                let order = order.open(&held)?;
                order.paid_by = Some(card.to_owned());
                order.charges += 1;
                Ok(format!("charged {card}"))
            })
            .await?
    }

    fn order(&self) -> std::sync::MutexGuard<'_, Order> {
        self.order.lock().expect("no panic holds the lock")
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://localhost".to_owned());
    // A prefix of its own, so that every run of this example is a first one.
    let prefix = format!("example:{}:{:?}:", std::process::id(), std::time::UNIX_EPOCH.elapsed()?.as_nanos());
    let store = RedisStore::builder(url).prefix(prefix).open().await?;
    // On the same connections as the store.
    let locks = Locks::new(store.locks());
    let once = Idempotency::builder(store)
        .settings(onlyonce::Settings { wait: Duration::from_secs(30), ..Default::default() })
        .build()?;
    let shop = Shop { once, locks, order: Arc::default() };

    // Ten retries of a payment by ann, and ten of one by ben, all at once.
    let calls: Vec<_> = (0..20)
        .map(|n| {
            let (shop, name) = (shop.clone(), if n % 2 == 0 { "ann" } else { "ben" });
            tokio::spawn(async move { (name, shop.pay(&format!("key of {name}"), name).await) })
        })
        .collect();
    let (mut paid, mut too_late) = (0, 0);
    for call in calls {
        match call.await? {
            (_, Ok(_)) => paid += 1,
            (_, Err(PayError::AlreadyPaid)) => too_late += 1,
            (name, Err(PayError::Refused(refusal))) => println!("{name}: {refusal}"),
            (name, Err(error)) => println!("{name}: {error:?}"),
        }
    }
    println!("{paid} callers heard that they have paid, {too_late} that the order was paid already");
    println!("charges: {}", shop.order().charges);
    shop.locks.close(Duration::from_secs(5)).await;
    Ok(())
}
