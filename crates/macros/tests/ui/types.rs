use onlyonce::{Classify, Idempotency, Refusal, idempotent};

#[derive(Classify)]
enum PayError {
    #[unknown]
    Refused(Refusal),
}

impl From<Refusal> for PayError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

struct Opaque;

#[idempotent(engine = once, key = id)]
async fn value_without_serde(once: &Idempotency, id: u64) -> Result<Opaque, PayError> {
    Ok(Opaque)
}

#[idempotent(engine = once, key = id)]
async fn error_without_classes(once: &Idempotency, id: u64) -> Result<u64, String> {
    Ok(id)
}

#[idempotent(engine = id, key = id)]
async fn not_an_engine(id: u64) -> Result<u64, PayError> {
    Ok(id)
}

#[idempotent(engine = once, key = id)]
async fn not_a_key(once: &Idempotency, id: Opaque) -> Result<u64, PayError> {
    Ok(7)
}

fn main() {}
