//! The laws of a store that is full, on one that may hold few records.
#![allow(clippy::unwrap_used, reason = "a harness is a test")]

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Claim, Fingerprint, Hash16, Label, ManualClock, Owner, RecordId, Store, Takeover};
use onlyonce_store_embedded::EmbeddedStore;
use onlyonce_testkit::{FullHarness, Harness, conformance_full};

/// Enough for the laws, and soon full.
const MOST: u64 = 12;

struct Small {
    clock: ManualClock,
    store: Arc<EmbeddedStore>,
    _directory: tempfile::TempDir,
}

#[async_trait::async_trait]
impl Harness for Small {
    async fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = ManualClock::new();
        let builder = EmbeddedStore::builder(directory.path()).with_clock(clock.clone()).max_records(MOST);
        Self { clock, store: Arc::new(builder.open().unwrap()), _directory: directory }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(30)
    }

    async fn pass(&self, span: Duration) {
        self.clock.advance(span);
    }
}

#[async_trait::async_trait]
impl FullHarness for Small {
    async fn fill(&self) {
        let hash = Hash16::from_bytes([0; 16]);
        for _ in 0..=MOST {
            let claim = Claim {
                owner: Owner::random(),
                fingerprint: Fingerprint::empty(),
                lease: Duration::from_secs(3600),
                retain_unsettled: Duration::from_secs(3600),
                takeover: Takeover::Never,
                label: Label { route: "filling".into(), key: hash, scope: hash },
            };
            let id = RecordId::from_bytes(rand::random());
            if self.store.begin(&id, &claim).await.is_err() {
                return;
            }
        }
        panic!("it is never full");
    }
}

conformance_full!(Small);
