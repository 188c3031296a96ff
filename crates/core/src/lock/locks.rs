//! The handle that users hold, and what all locks of it share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};

use super::backend::{LockBackend, Proof};
use super::error::{LockError, RenewalFailure};
use super::line::Lines;
use super::owner::LockOwner;
use super::request::Request;
use crate::clock::{Clock, SystemClock};
use crate::drain::{Tracker, Visit};
use crate::engine::Drained;
use crate::keeper::Keeper;
use crate::record::Fence;

/// Locks on one backend. Cheap to clone; clones share everything.
///
/// ```
/// # use onlyonce_core::lock::{LockError, Locks, MemoryLocks, Release};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = Locks::new(MemoryLocks::new());
/// let guard = locks.key("report").acquire().await?;
/// assert!(matches!(locks.key("report").acquire().await, Err(LockError::Busy { .. })));
/// assert_eq!(guard.release().await?, Release::Released);
/// locks.close(Duration::from_secs(1)).await;
/// # Ok(()) }
/// ```
pub struct Locks<P: Proof = Fence> {
    pub(super) inner: Arc<Inner<P>>,
}

/// What the handles share.
pub(super) struct Inner<P: Proof> {
    pub(super) shared: Arc<Shared<P>>,
    pub(super) keeper: Keeper,
    pub(super) lines: Arc<Lines>,
    pub(super) waiters: Semaphore,
    pub(super) tracker: Tracker,
    pub(super) closing: Notify,
}

/// What a held lock needs of it: not the keeper, which holds the lock in its schedule.
pub(super) struct Shared<P: Proof> {
    pub(super) backend: Arc<dyn LockBackend<Proof = P>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) hook: Option<Hook>,
}

pub(super) type Hook = Box<dyn Fn(&RenewalFailure<'_>) + Send + Sync>;

impl<P: Proof> Locks<P> {
    /// Locks on this backend.
    #[must_use]
    pub fn new(backend: impl LockBackend<Proof = P>) -> Self {
        Self::builder(backend).build()
    }

    /// Starts configured locks.
    pub fn builder(backend: impl LockBackend<Proof = P>) -> LocksBuilder<P> {
        Self::builder_shared(Arc::new(backend))
    }

    /// The same, on a backend that is shared already.
    pub fn builder_shared(backend: Arc<dyn LockBackend<Proof = P>>) -> LocksBuilder<P> {
        LocksBuilder { backend, clock: Arc::new(SystemClock), hook: None, max_waiters: 10_000 }
    }

    /// The lock of this name, to be [acquired](Request::acquire) or [run](Request::run) under.
    pub fn key(&self, name: impl Into<Arc<str>>) -> Request<P> {
        Request::new(self.clone(), name.into())
    }

    /// A handle that may take a lock again that it already has. See [`LockOwner`].
    #[must_use]
    pub fn owner(&self) -> LockOwner<P> {
        LockOwner::new(self)
    }

    /// Gives no more locks, sends away who waits, and waits until all that are held are released, or `limit` is over. What is
    /// left then is still renewed while its guard lives, and runs out with this process.
    pub async fn close(&self, limit: Duration) -> Drained {
        let tracker = &self.inner.tracker;
        tracker.close();
        self.inner.closing.notify_waiters();
        tokio::select! {
            biased;
            () = tracker.empty() => Drained::Everything,
            () = self.inner.shared.clock.sleep(limit) => Drained::Left(tracker.inside()),
        }
    }
}

impl<P: Proof> Inner<P> {
    pub(super) fn enter(&self) -> Result<Visit, LockError> {
        self.tracker
            .enter()
            .map_err(|_| if self.tracker.is_closed() { LockError::Closed } else { LockError::TooManyWaiters })
    }

    /// Ends when these locks are closed.
    pub(super) async fn closed(&self) {
        let closing = self.closing.notified();
        tokio::pin!(closing);
        closing.as_mut().enable();
        if !self.tracker.is_closed() {
            closing.await;
        }
    }
}

/// Sets up locks.
#[must_use]
pub struct LocksBuilder<P: Proof = Fence> {
    backend: Arc<dyn LockBackend<Proof = P>>,
    clock: Arc<dyn Clock>,
    hook: Option<Hook>,
    max_waiters: usize,
}

impl<P: Proof> LocksBuilder<P> {
    /// Takes time from `clock`.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Calls `hook` whenever a renewal fails. It must not block.
    ///
    /// ```
    /// # use onlyonce_core::lock::{Locks, MemoryLocks, RenewalFailure};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let locks = Locks::builder(MemoryLocks::new())
    ///     .on_renewal_failure(|failure| match failure {
    ///         RenewalFailure::Lost { key } => eprintln!("{key} is lost"),
    ///         other => eprintln!("{other:?}"),
    ///     })
    ///     .build();
    /// # }
    /// ```
    pub fn on_renewal_failure(mut self, hook: impl Fn(&RenewalFailure<'_>) + Send + Sync + 'static) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// How many callers of this process may wait at a time (10,000); more are refused at once.
    pub fn max_waiters(mut self, waiters: usize) -> Self {
        self.max_waiters = waiters.min(Semaphore::MAX_PERMITS);
        self
    }

    /// The locks.
    pub fn build(self) -> Locks<P> {
        let keeper = Keeper::new(Arc::clone(&self.clock));
        Locks {
            inner: Arc::new(Inner {
                shared: Arc::new(Shared { backend: self.backend, clock: self.clock, hook: self.hook }),
                keeper,
                lines: Arc::default(),
                waiters: Semaphore::new(self.max_waiters),
                tracker: Tracker::default(),
                closing: Notify::new(),
            }),
        }
    }
}

impl<P: Proof> Clone for Locks<P> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<P: Proof> fmt::Debug for Locks<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("backend", &self.inner.shared.backend).finish_non_exhaustive()
    }
}

impl<P: Proof> fmt::Debug for Shared<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("backend", &self.backend).finish_non_exhaustive()
    }
}

impl<P: Proof> fmt::Debug for LocksBuilder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocksBuilder").field("backend", &self.backend).finish_non_exhaustive()
    }
}
