//! What a function under `#[idempotent]` does when it is called again.

mod common;

use std::io;
use std::sync::Arc;

use common::{Effects, PayError, engine};
use onlyonce::{Idempotency, MemoryStore, Refusal, Store, idempotent};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
struct Order {
    id: String,
    amount: u64,
}

struct Shop {
    once: Idempotency,
    effects: Effects,
}

impl Shop {
    fn new() -> Self {
        Self { once: engine(), effects: Effects::default() }
    }

    #[idempotent(engine = self.once, operation = "buy", key = order.id, scope = tenant, input = order)]
    async fn buy(&self, tenant: &str, order: Order) -> Result<(u32, Order), PayError> {
        tokio::task::yield_now().await;
        let effect = self.effects.add();
        if order.amount == 0 {
            return Err(PayError::Declined { reason: "nothing to pay".into(), code: 7 });
        }
        if order.amount == 13 && effect == 1 {
            Err(io::Error::other("the database is down"))?;
        }
        if order.amount == 14 {
            return Err(PayError::TimedOut);
        }
        Ok((effect, order))
    }
}

fn order(amount: u64) -> Order {
    Order { id: "order-42".into(), amount }
}

#[tokio::test]
async fn the_body_runs_once_and_its_value_is_replayed() {
    let shop = Shop::new();
    for _ in 0..3 {
        assert_eq!(shop.buy("ann", order(100)).await.unwrap(), (1, order(100)));
    }
    assert_eq!(shop.effects.count(), 1);
}

#[tokio::test]
async fn a_kept_error_is_replayed_equal() {
    let shop = Shop::new();
    for _ in 0..3 {
        let error = shop.buy("ann", order(0)).await.unwrap_err();
        assert!(
            matches!(&error, PayError::Declined { reason, code: 7 } if reason == "nothing to pay"),
            "{error:?}"
        );
    }
    assert_eq!(shop.effects.count(), 1);
}

#[tokio::test]
async fn after_a_released_error_the_body_runs_again() {
    let shop = Shop::new();
    assert!(matches!(shop.buy("ann", order(13)).await.unwrap_err(), PayError::Down(_)));
    assert_eq!(shop.buy("ann", order(13)).await.unwrap().0, 2);
    assert_eq!(shop.buy("ann", order(13)).await.unwrap().0, 2);
}

#[tokio::test]
async fn after_an_unknown_error_retries_are_told_so() {
    let shop = Shop::new();
    assert!(matches!(shop.buy("ann", order(14)).await.unwrap_err(), PayError::TimedOut));
    let again = shop.buy("ann", order(14)).await.unwrap_err();
    assert!(matches!(again, PayError::Refused(Refusal::Unknown { .. })), "{again:?}");
    assert_eq!(shop.effects.count(), 1);
}

#[tokio::test]
async fn another_payload_under_the_same_key_is_refused() {
    let shop = Shop::new();
    shop.buy("ann", order(100)).await.unwrap();
    let other = shop.buy("ann", order(101)).await.unwrap_err();
    assert!(matches!(other, PayError::Refused(Refusal::Mismatch)), "{other:?}");
    assert_eq!(shop.effects.count(), 1);
}

#[tokio::test]
async fn the_scope_separates_callers_with_the_same_key() {
    let shop = Shop::new();
    assert_eq!(shop.buy("ann", order(100)).await.unwrap().0, 1);
    assert_eq!(shop.buy("bob", order(100)).await.unwrap().0, 2);
}

#[tokio::test]
async fn a_key_that_cannot_be_used_runs_nothing() {
    let shop = Shop::new();
    let error = shop.buy("ann", Order { id: String::new(), amount: 1 }).await.unwrap_err();
    assert!(matches!(error, PayError::Refused(Refusal::Input(_))), "{error:?}");
    assert_eq!(shop.effects.count(), 0);
}

/// Two engines on one store: when the first is drained, the second sees what came of it.
fn engines() -> [Idempotency; 2] {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    [(); 2]
        .map(|()| Idempotency::builder_shared(Arc::clone(&store)).build().expect("the defaults make sense"))
}

/// Says that it has begun, then waits until it may go on.
#[derive(Default)]
struct Gate {
    begun: Notify,
    go: Notify,
    effects: Effects,
}

impl Gate {
    async fn pass(&self) -> u32 {
        self.begun.notify_one();
        self.go.notified().await;
        self.effects.add()
    }
}

#[idempotent(engine = once, key = key, detached)]
async fn survives(once: Idempotency, key: u32, gate: Arc<Gate>) -> Result<u32, PayError> {
    Ok(gate.pass().await)
}

#[idempotent(engine = once, key = key)]
async fn does_not_survive(once: Idempotency, key: u32, gate: Arc<Gate>) -> Result<u32, PayError> {
    Ok(gate.pass().await)
}

#[tokio::test]
async fn a_detached_body_survives_its_caller() {
    let ([once, next], gate) = (engines(), Arc::new(Gate::default()));
    let caller = tokio::spawn(survives(once.clone(), 7, Arc::clone(&gate)));
    gate.begun.notified().await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    gate.go.notify_one();
    once.drain(std::time::Duration::from_secs(10)).await;
    assert_eq!(survives(next, 7, Arc::clone(&gate)).await.unwrap(), 1);
    assert_eq!(gate.effects.count(), 1);
}

#[tokio::test]
async fn an_inline_body_that_is_dropped_half_way_is_unknown() {
    let ([once, next], gate) = (engines(), Arc::new(Gate::default()));
    let caller = tokio::spawn(does_not_survive(once.clone(), 7, Arc::clone(&gate)));
    gate.begun.notified().await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    once.drain(std::time::Duration::from_secs(10)).await;
    let again = does_not_survive(next, 7, Arc::clone(&gate)).await.unwrap_err();
    assert!(matches!(again, PayError::Refused(Refusal::Unknown { .. })), "{again:?}");
    assert_eq!(gate.effects.count(), 0);
}
