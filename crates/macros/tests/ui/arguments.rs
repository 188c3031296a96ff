use onlyonce::{Idempotency, Refusal, idempotent};

#[idempotent(key = id)]
async fn no_engine(id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[idempotent(engine = once)]
async fn no_key(once: &Idempotency) -> Result<(), Refusal> {
    Ok(())
}

#[idempotent]
async fn neither() -> Result<(), Refusal> {
    Ok(())
}

#[idempotent(engine = once, key = id, operaton = "charge")]
async fn a_slip(once: &Idempotency, id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[idempotent(engine = once, key = id, timeout = 7)]
async fn nonsense(once: &Idempotency, id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[idempotent(engine = once, key = id, key = 7)]
async fn twice(once: &Idempotency, id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[idempotent(engine = once, key)]
async fn no_value(once: &Idempotency, key: u64) -> Result<(), Refusal> {
    Ok(())
}

#[idempotent(engine = once, key = id, detached = true)]
async fn a_flag(once: &Idempotency, id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[idempotent(engine = once, key = id, operation = "")]
async fn no_name(once: &Idempotency, id: u64) -> Result<(), Refusal> {
    Ok(())
}

fn main() {}
