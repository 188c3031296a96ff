//! The error type and the counter that the tests of the attribute share.
#![allow(dead_code, unreachable_pub, reason = "not every test binary uses all of it")]

use std::sync::atomic::{AtomicU32, Ordering};

use onlyonce::{Classify, Idempotency, MemoryStore, Refusal};

#[derive(Debug, Classify)]
pub enum PayError {
    #[keep]
    Declined { reason: String, code: u16 },
    #[release]
    Down(std::io::Error),
    #[unknown]
    TimedOut,
    #[unknown]
    Refused(Refusal),
}

impl From<Refusal> for PayError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<std::io::Error> for PayError {
    fn from(cause: std::io::Error) -> Self {
        Self::Down(cause)
    }
}

/// Counts how often bodies ran.
#[derive(Debug, Default)]
pub struct Effects(AtomicU32);

impl Effects {
    pub fn add(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

pub fn engine() -> Idempotency {
    Idempotency::new(MemoryStore::new())
}
