#![allow(unused_variables)]

use onlyonce::{Idempotency, Refusal, idempotent};

#[idempotent(engine = once, key = id)]
fn not_async(once: &Idempotency, id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[idempotent(engine = once, key = id)]
async fn returns_nothing(once: &Idempotency, id: u64) {}

#[idempotent(engine = once, key = id)]
async fn returns_a_tuple(once: &Idempotency, id: u64) -> (u64, u64) {
    (id, id)
}

#[idempotent(engine = once, key = id)]
async fn returns_an_option(once: &Idempotency, id: u64) -> Option<u64> {
    Some(id)
}

#[idempotent(engine = once, key = 7)]
struct NotAFunction;

trait NoBody {
    #[idempotent(engine = once, key = 7)]
    async fn charge(once: &Idempotency) -> Result<(), Refusal>;
}

fn main() {}
