//! The memory store and the reference model keep every law.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::{
    Claim, Fingerprint, Hash16, Inspect, Label, ManualClock, MemoryStore, Owner, RecordId, Store, Takeover,
};
use onlyonce_testkit::{
    FullHarness, Harness, InspectHarness, ModelHarness, conformance, conformance_contended_fences,
    conformance_full, conformance_inspect,
};

/// Enough for every law.
const MOST: usize = 1000;

struct MemoryHarness {
    clock: ManualClock,
    store: Arc<MemoryStore>,
}

#[async_trait]
impl Harness for MemoryHarness {
    async fn open() -> Self {
        let clock = ManualClock::new();
        Self { store: Arc::new(MemoryStore::new().with_clock(clock.clone()).max_records(MOST)), clock }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(30)
    }

    async fn pass(&self, span: Duration) {
        self.clock.advance(span);
    }
}

#[async_trait]
impl InspectHarness for MemoryHarness {
    fn inspect(&self) -> Arc<dyn Inspect> {
        Arc::clone(&self.store) as _
    }
}

#[async_trait]
impl FullHarness for MemoryHarness {
    async fn fill(&self) {
        while self.store.len() < MOST {
            let hash = Hash16::from_bytes([0; 16]);
            let claim = Claim {
                owner: Owner::random(),
                fingerprint: Fingerprint::empty(),
                lease: Duration::from_secs(3600),
                retain_unsettled: Duration::from_secs(3600),
                takeover: Takeover::Never,
                label: Label { route: "filling".into(), key: hash, scope: hash },
            };
            self.store.begin(&RecordId::from_bytes(rand::random()), &claim).await.expect("room");
        }
    }
}

mod memory {
    use super::*;
    conformance!(MemoryHarness);
    conformance_contended_fences!(MemoryHarness);
    conformance_inspect!(MemoryHarness);
    conformance_full!(MemoryHarness);
}

mod model {
    use super::*;
    conformance!(ModelHarness);
    conformance_contended_fences!(ModelHarness);
    conformance_inspect!(ModelHarness);
    conformance_full!(ModelHarness);
}

/// A real server's time can't be moved by hand: the laws must hold, and be quick, when it really passes.
mod memory_in_real_time {
    use super::*;

    struct RealTime(Arc<MemoryStore>);

    #[async_trait]
    impl Harness for RealTime {
        async fn open() -> Self {
            Self(Arc::new(MemoryStore::new()))
        }

        fn store(&self) -> Arc<dyn Store> {
            Arc::clone(&self.0) as _
        }

        fn lease(&self) -> Duration {
            Duration::from_millis(200)
        }

        async fn pass(&self, span: Duration) {
            tokio::time::sleep(span).await;
        }
    }

    conformance!(RealTime);
}
