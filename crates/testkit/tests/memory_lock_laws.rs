//! Locks in memory keep every law of locks.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::lock::{LockBackend, MemoryLocks};
use onlyonce_core::{Fence, ManualClock};
use onlyonce_testkit::{LockHarness, lock_conformance};

struct Memory {
    clock: ManualClock,
    locks: Arc<MemoryLocks>,
}

#[async_trait::async_trait]
impl LockHarness for Memory {
    type Proof = Fence;

    async fn open() -> Self {
        let clock = ManualClock::new();
        Self { locks: Arc::new(MemoryLocks::with_clock(clock.clone())), clock }
    }

    fn backend(&self) -> Arc<dyn LockBackend<Proof = Fence>> {
        self.locks.clone()
    }

    fn unit(&self) -> Duration {
        Duration::from_secs(10)
    }

    async fn pass(&self, span: Duration) {
        self.clock.advance(span);
    }
}

lock_conformance!(Memory, fenced);
