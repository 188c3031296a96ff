//! Functions of every shape take `#[idempotent]`, and nothing of ours gets in the way of their names.

mod common;

use std::fmt::{Debug, Display};
use std::sync::{Arc, Mutex};

use common::{Effects, PayError, engine};
use onlyonce::{Idempotency, idempotent};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A key type that is only shown, as `Uuid` is.
struct Uuid(u128);

impl Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[idempotent(engine = once, operation = "keyed", key = key)]
async fn keyed<K: Display + Send>(once: &Idempotency, key: K, effects: &Effects) -> Result<u32, PayError> {
    Ok(effects.add())
}

#[tokio::test]
async fn whatever_can_be_shown_is_a_key() {
    let (once, effects) = (engine(), Effects::default());
    for _ in 0..2 {
        assert_eq!(keyed(&once, "text", &effects).await.unwrap(), 1);
        assert_eq!(keyed(&once, String::from("text"), &effects).await.unwrap(), 1);
        assert_eq!(keyed(&once, 42, &effects).await.unwrap(), 2);
        assert_eq!(keyed(&once, Uuid(42), &effects).await.unwrap(), 3);
    }
}

/// Generic in its answer, with a pattern, a `mut` parameter and a where clause.
#[idempotent(engine = once, key = format!("{key}-{part}"), input = (items, more))]
pub async fn gather<'a, T, const N: usize>(
    once: &'a Arc<Idempotency>,
    (key, part): (&'a str, u8),
    mut items: Vec<T>,
    more: [T; N],
) -> Result<Vec<T>, PayError>
where
    T: Serialize + DeserializeOwned + Debug,
    [T; N]: Serialize,
{
    #![allow(clippy::let_and_return, reason = "an inner attribute is kept")]
    items.extend(more);
    let gathered = items;
    gathered.is_empty().then_some(()).map_or(Ok(()), |()| Err(PayError::TimedOut))?;
    Ok(gathered)
}

#[tokio::test]
async fn generics_patterns_and_arguments_that_the_body_consumes() {
    let once = Arc::new(engine());
    for _ in 0..2 {
        let gathered = gather(&once, ("k", 1), vec![1, 2], [3]).await.unwrap();
        assert_eq!(gathered, [1, 2, 3]);
    }
    gather(&once, ("k", 1), vec![1], [2, 3]).await.expect_err("the same items, divided otherwise");
}

struct Bank {
    once: Idempotency,
    balance: Mutex<u64>,
}

trait Withdraw {
    async fn withdraw(&self, key: &str, amount: u64) -> Result<u64, PayError>;
}

impl Withdraw for Bank {
    #[idempotent(engine = self.once, key = key, input = amount)]
    async fn withdraw(&self, key: &str, amount: u64) -> Result<u64, PayError> {
        let mut balance = self.balance.lock().expect("no panic holds it");
        *balance -= amount;
        Ok(*balance)
    }
}

type Paid<T> = Result<T, PayError>;

impl Bank {
    #[idempotent(engine = self.once, key = key, permit = permit, detached)]
    async fn fence(self: Arc<Self>, key: u64) -> Paid<String> {
        assert!(!permit.is_lost());
        Ok(format!("{:?} {}", permit.fence(), self.balance.lock().expect("no panic holds it")))
    }

    #[idempotent(engine = self.once, key = key, permit = permit)]
    async fn record(&mut self, key: u64) -> Paid<String> {
        *self.balance.get_mut().expect("no panic holds it") += 1;
        Ok(permit.record_id().to_string())
    }

    #[idempotent(engine = self.once, key = key.ok_or(PayError::TimedOut)?)]
    async fn close(self, key: Option<&str>) -> Paid<u64> {
        Ok(self.balance.into_inner().expect("no panic holds it"))
    }
}

#[tokio::test]
async fn methods_of_every_receiver_aliases_and_permits() {
    let mut bank = Bank { once: engine(), balance: Mutex::new(100) };
    for _ in 0..2 {
        assert_eq!(bank.withdraw("w", 30).await.unwrap(), 70);
    }
    assert_eq!(bank.record(1).await.unwrap(), bank.record(1).await.unwrap());
    let bank = Arc::new(bank);
    let fence = Arc::clone(&bank).fence(7).await.unwrap();
    assert_eq!(Arc::clone(&bank).fence(7).await.unwrap(), fence);
    let bank = Arc::into_inner(bank).unwrap();
    assert_eq!(bank.close(Some("c")).await.unwrap(), 71);
}

#[tokio::test]
async fn an_argument_may_leave_the_function_before_anything_ran() {
    let bank = Bank { once: engine(), balance: Mutex::new(1) };
    assert!(matches!(bank.close(None).await.unwrap_err(), PayError::TimedOut));
}

#[tokio::test]
async fn the_operation_is_by_default_the_name_of_the_function() {
    #[idempotent(engine = once, key = 1)]
    async fn r#move(once: &Idempotency, effects: &Effects) -> Paid<u32> {
        Ok(effects.add())
    }

    let (once, effects) = (engine(), Effects::default());
    assert_eq!(r#move(&once, &effects).await.unwrap(), 1);
    let same: Paid<u32> = once.call("move", "1").run(async { unreachable!("it ran before") }).await;
    assert_eq!(same.unwrap(), 1);
}

/// Names that an expansion without hygiene would trip over.
mod shadows {
    #![allow(non_camel_case_types, dead_code, reason = "the names are the point")]

    use super::{Effects, PayError};

    pub(crate) mod reexported {
        pub(crate) use onlyonce as once;
    }

    pub(crate) struct String;
    pub(crate) struct Idempotency;
    pub(crate) enum Result {
        Ok,
        Err,
    }

    #[super::idempotent(crate = self::reexported::once, engine = engine, key = call, scope = saved)]
    pub(crate) async fn shadowed(
        engine: onlyonce::Idempotency,
        call: &str,
        saved: &str,
        kept: &Effects,
    ) -> std::result::Result<u32, PayError> {
        assert_eq!((call, saved), ("call", "saved"));
        let _ = engine;
        Ok(kept.add())
    }
}

#[tokio::test]
async fn nothing_of_ours_meets_the_names_of_the_function() {
    let (once, effects) = (engine(), Effects::default());
    for _ in 0..2 {
        assert_eq!(shadows::shadowed(once.clone(), "call", "saved", &effects).await.unwrap(), 1);
    }
}

#[test]
fn the_future_can_be_sent_where_the_body_can() {
    fn is_send(_: impl Send) {}
    let (once, effects) = (engine(), Effects::default());
    is_send(keyed(&once, "text", &effects));
}
