//! Every law, on a directory of its own.
#![allow(clippy::unwrap_used, reason = "a harness is a test")]

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Inspect, ManualClock, Store};
use onlyonce_store_embedded::EmbeddedStore;
use onlyonce_testkit::{
    Harness, InspectHarness, conformance, conformance_contended_fences, conformance_inspect,
};

struct Embedded {
    clock: ManualClock,
    store: Arc<EmbeddedStore>,
    _directory: tempfile::TempDir,
}

#[async_trait::async_trait]
impl Harness for Embedded {
    async fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = ManualClock::new();
        let store = EmbeddedStore::builder(directory.path()).with_clock(clock.clone()).open().unwrap();
        Self { clock, store: Arc::new(store), _directory: directory }
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
impl InspectHarness for Embedded {
    fn inspect(&self) -> Arc<dyn Inspect> {
        self.store.clone()
    }
}

conformance!(Embedded);
conformance_contended_fences!(Embedded);
conformance_inspect!(Embedded);
