//! Calls through the engine, with an effect that is written down where it happens.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::codec::CodecError;
use onlyonce_core::{Bytes, Class, Classify, Idempotency, Refusal, Settings, Store};
use onlyonce_testkit::Ledger;

/// The effect never fails by itself; only what is said instead of an answer remains.
#[derive(Debug)]
pub(crate) struct NoAnswer(pub(crate) Refusal);

impl From<Refusal> for NoAnswer {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl Classify for NoAnswer {
    fn classify(&self) -> Class {
        Class::Unknown
    }

    fn save(&self) -> Result<Bytes, CodecError> {
        Err(CodecError::Invalid("a refusal is not an answer".into()))
    }

    fn revive(_: Bytes) -> Result<Self, CodecError> {
        Err(CodecError::Invalid("no error is ever stored".into()))
    }
}

pub(crate) fn engine(store: Arc<dyn Store>, settings: Settings) -> Idempotency {
    Idempotency::builder_shared(store).settings(settings).build().unwrap()
}

/// One call, whose effect takes a moment; every execution answers differently.
pub(crate) async fn call(once: &Idempotency, key: &str, effects: &Ledger) -> Result<String, NoAnswer> {
    let (name, effects) = (key.to_owned(), effects.clone());
    once.call("effect", key)
        .input(&key.len())
        .run(async move {
            let answer = format!("{:016x}", rand::random::<u64>());
            effects.record(&name, &answer).unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok::<_, NoAnswer>(answer)
        })
        .await
}
