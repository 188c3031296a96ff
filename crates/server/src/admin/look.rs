//! What the store says of itself, asked on a thread that may wait: a look at a disk that hangs does not come back.

use std::sync::Arc;

use onlyonce::{ErrorKind, Store, StoreError};
use tokio::sync::Mutex;

/// Asks one at a time: whoever probes a disk that hangs takes up one thread, and not one each time.
#[derive(Debug, Default)]
pub(super) struct Look {
    turn: Arc<Mutex<()>>,
    /// What was wrong at the last look that came back.
    last: Arc<parking_lot::Mutex<Option<ErrorKind>>>,
}

impl Look {
    /// Whether a new call could begin.
    ///
    /// # Cancel safety
    /// A look that has begun goes on, and is remembered.
    pub(super) async fn take(&self, store: Arc<dyn Store>) -> Result<(), StoreError> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let last = Arc::clone(&self.last);
        let look = tokio::task::spawn_blocking(move || {
            let said = store.ready();
            *last.lock() = said.as_ref().err().map(StoreError::kind);
            drop(turn);
            said
        });
        look.await.unwrap_or_else(|cause| Err(StoreError::unavailable("store", "ready", cause)))
    }

    pub(super) fn last(&self) -> Option<ErrorKind> {
        *self.last.lock()
    }
}
