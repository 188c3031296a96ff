//! What the two directions of one exchange know of each other: the silence of one does not count while the other moves.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onlyonce::{Clock as _, Moment, SystemClock};

use super::upstream::Fault;

/// A request whose body is sent while it comes, and its answer.
#[derive(Debug)]
pub(crate) struct Flow {
    /// When a piece of either moved last.
    moved: AtomicU64,
    /// More of the request is waited for: it is the caller's turn.
    waits_for_caller: AtomicBool,
    /// Both may be silent for as long as they like.
    long_lived: AtomicBool,
    /// What was wrong with the body: an error of HTTP/2 does not say what it was caused by.
    pub(crate) fault: OnceLock<Fault>,
}

const ORDER: Ordering = Ordering::Relaxed;

impl Flow {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            moved: AtomicU64::new(SystemClock.now().as_micros()),
            waits_for_caller: AtomicBool::new(false),
            long_lived: AtomicBool::new(false),
            fault: OnceLock::new(),
        })
    }

    /// A piece of the request or of the answer came.
    pub(crate) fn moves(&self) {
        self.moved.store(SystemClock.now().as_micros(), ORDER);
    }

    pub(crate) fn waits_for_caller(&self, waits: bool) {
        self.waits_for_caller.store(waits, ORDER);
    }

    pub(crate) fn set_long_lived(&self, long_lived: bool) {
        self.long_lived.store(long_lived, ORDER);
    }

    pub(crate) fn is_long_lived(&self) -> bool {
        self.long_lived.load(ORDER)
    }

    /// What is left of this time since something moved, if it is not over.
    pub(crate) fn left(&self, limit: Duration) -> Option<Duration> {
        let silent = SystemClock.now().since(Moment::from_micros(self.moved.load(ORDER)));
        limit.checked_sub(silent).filter(|left| !left.is_zero())
    }

    /// The same for the time that an upstream has: none of it passes while the caller's turn is waited for.
    pub(crate) fn left_for_upstream(&self, limit: Duration) -> Option<Duration> {
        if self.waits_for_caller.load(ORDER) { Some(limit) } else { self.left(limit) }
    }
}

/// The answer's end of it: with the answer, whole or not, the right to be silent is over.
#[derive(Debug)]
pub(crate) struct Answered(pub(crate) Arc<Flow>);

impl Drop for Answered {
    fn drop(&mut self) {
        self.0.moves();
        self.0.set_long_lived(false);
    }
}
