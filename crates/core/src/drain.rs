//! Counting the calls that are under way, so that there are not too many, and a process can leave without abandoning them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How many calls may be under way at a time, those included whose settlement the store has not taken yet.
const MAX_INSIDE: usize = 100_000;

/// Counts visits and can be closed to new ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tracker(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    inside: AtomicUsize,
    closed: AtomicBool,
    left: Notify,
}

/// A call under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Visit(Arc<Counts>);

// The count and the flag are one decision, so they are in one order for everybody: whoever closes sees the count, or the
// one who enters sees that it is closed.
const ORDER: Ordering = Ordering::SeqCst;

impl Tracker {
    /// Counts a call, or says why it may not begin.
    pub(crate) fn enter(&self) -> Result<Visit, &'static str> {
        let visit = self.enter_even_if_closed();
        if self.0.closed.load(ORDER) {
            return Err("the engine is closing; send the call to another instance, or retry later");
        }
        if self.inside() > MAX_INSIDE {
            return Err("too many calls are under way, or wait for the store; retry later");
        }
        Ok(visit)
    }

    /// For what belongs to a call that was let in before.
    pub(crate) fn enter_even_if_closed(&self) -> Visit {
        self.0.inside.fetch_add(1, ORDER);
        Visit(Arc::clone(&self.0))
    }

    pub(crate) fn inside(&self) -> usize {
        self.0.inside.load(ORDER)
    }

    pub(crate) fn close(&self) {
        self.0.closed.store(true, ORDER);
    }

    #[cfg(feature = "locks")]
    pub(crate) fn is_closed(&self) -> bool {
        self.0.closed.load(ORDER)
    }

    pub(crate) async fn empty(&self) {
        loop {
            let left = self.0.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if self.inside() == 0 {
                return;
            }
            left.await;
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if self.0.inside.fetch_sub(1, ORDER) == 1 {
            self.0.left.notify_waiters();
        }
    }
}
