//! A handler that stands still until the test lets it go on.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Clones share the state: how many have arrived, and how many may pass.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    arrived: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { arrived: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }

    /// Called by the handler: says that it is there, and waits.
    pub(crate) async fn pass(&self) {
        self.arrived.add_permits(1);
        self.open.acquire().await.unwrap().forget();
    }

    /// Called by the test: waits until one more handler is there.
    pub(crate) async fn arrival(&self) {
        self.arrived.acquire().await.unwrap().forget();
    }

    /// Called by the test: lets so many go on.
    pub(crate) fn open(&self, how_many: usize) {
        self.open.add_permits(how_many);
    }
}
