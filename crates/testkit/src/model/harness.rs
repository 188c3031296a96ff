//! The model under the laws.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::{Inspect, ManualClock, Store};

use super::{Flaw, ModelStore};
use crate::harness::{FullHarness, Harness, InspectHarness};

/// A [`ModelStore`] whose time is moved by hand, with or without a [`Flaw`].
#[derive(Debug)]
pub struct ModelHarness {
    clock: ManualClock,
    store: Arc<ModelStore>,
}

impl ModelHarness {
    /// A model with this mistake.
    #[must_use]
    pub fn flawed(flaw: Flaw) -> Self {
        let clock = ManualClock::new();
        Self { store: Arc::new(ModelStore::new(clock.clone()).with_flaw(flaw)), clock }
    }
}

#[async_trait]
impl Harness for ModelHarness {
    async fn open() -> Self {
        let clock = ManualClock::new();
        Self { store: Arc::new(ModelStore::new(clock.clone())), clock }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(30)
    }

    async fn pass(&self, span: Duration) {
        self.clock.advance(span);
        tokio::task::yield_now().await;
    }
}

#[async_trait]
impl InspectHarness for ModelHarness {
    fn inspect(&self) -> Arc<dyn Inspect> {
        Arc::clone(&self.store) as _
    }
}

#[async_trait]
impl FullHarness for ModelHarness {
    async fn fill(&self) {
        self.store.fill();
    }
}
