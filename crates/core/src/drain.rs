//! Counting the calls that are under way, so that a process can leave without abandoning them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

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

impl Tracker {
    pub(crate) fn enter(&self) -> Option<Visit> {
        self.0.inside.fetch_add(1, Ordering::AcqRel);
        let visit = Visit(Arc::clone(&self.0));
        // Counted first, looked second: whoever closes sees either the count or is seen.
        (!self.0.closed.load(Ordering::Acquire)).then_some(visit)
    }

    pub(crate) fn inside(&self) -> usize {
        self.0.inside.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
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
        if self.0.inside.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.left.notify_waiters();
        }
    }
}
