//! Owners that may take a lock again that they have.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::acquire::{self, Wanted};
use super::backend::Proof;
use super::error::LockError;
use super::guard::Guard;
use super::hold::Hold;
use super::locks::{Inner, Locks};
use super::name::LockName;
use crate::error::InputError;
use crate::record::Fence;

/// Someone who may take a lock again that he already has: made by [`Locks::owner`], given to
/// [`Request::owner`](super::Request::owner). Clones are the same owner.
///
/// Reentrance is by this handle and not by thread or task, because async work changes both. Guards are counted in this
/// process: the lock is released with the last one, and another process never shares it.
///
/// ```
/// # use onlyonce_core::lock::{Locks, MemoryLocks, Release};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = Locks::new(MemoryLocks::new());
/// let me = locks.owner();
/// let outer = locks.key("order:42").owner(&me).acquire().await?;
/// let inner = locks.key("order:42").owner(&me).acquire().await?;
/// assert_eq!(inner.release().await?, Release::StillHeld);
/// assert_eq!(outer.release().await?, Release::Released);
/// # Ok(()) }
/// ```
pub struct LockOwner<P: Proof = Fence> {
    of: Weak<Inner<P>>,
    cells: Arc<Mutex<HashMap<LockName, Cell<P>>>>,
}

/// What an owner holds under one name. Locked while it is being acquired, so that two tasks of one owner don't wait for
/// each other.
type Cell<P> = Arc<tokio::sync::Mutex<Weak<Hold<P>>>>;

/// Beyond this many names, those that are not held are forgotten.
const MANY: usize = 64;

impl<P: Proof> LockOwner<P> {
    pub(super) fn new(locks: &Locks<P>) -> Self {
        Self { of: Arc::downgrade(&locks.inner), cells: Arc::default() }
    }

    pub(super) async fn acquire(&self, locks: &Locks<P>, wanted: Wanted) -> Result<Guard<P>, LockError> {
        if !std::ptr::eq(self.of.as_ptr(), Arc::as_ptr(&locks.inner)) {
            return Err(
                InputError::new("the owner belongs to other locks; make one with the same `Locks`").into()
            );
        }
        let clock = &locks.inner.shared.clock;
        let began = clock.now();
        let cell = self.cell(&wanted.name);
        let mut held = tokio::select! {
            biased;
            held = cell.lock() => held,
            () = clock.sleep(wanted.wait) => {
                return Err(LockError::Busy { waited: clock.now().since(began), free_in: None });
            }
        };
        if let Some(hold) = held.upgrade().filter(|hold| hold.join()) {
            // Counts also while these locks are closing: it belongs to what was let in before.
            let visit = locks.inner.tracker.enter_even_if_closed();
            return Ok(Guard::new(Arc::clone(&locks.inner), hold, visit));
        }
        let wait = wanted.wait.saturating_sub(clock.now().since(began));
        let guard = acquire::acquire(&locks.inner, Wanted { wait, ..wanted }).await?;
        *held = Arc::downgrade(guard.hold());
        Ok(guard)
    }

    fn cell(&self, name: &LockName) -> Cell<P> {
        let mut cells = self.cells.lock();
        if cells.len() >= MANY {
            let in_use = |cell: &Cell<P>| {
                Arc::strong_count(cell) > 1 || cell.try_lock().is_ok_and(|held| held.strong_count() > 0)
            };
            cells.retain(|_, cell| in_use(cell));
        }
        Arc::clone(cells.entry(name.clone()).or_default())
    }
}

impl<P: Proof> Clone for LockOwner<P> {
    fn clone(&self) -> Self {
        Self { of: Weak::clone(&self.of), cells: Arc::clone(&self.cells) }
    }
}

impl<P: Proof> fmt::Debug for LockOwner<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockOwner").field("names", &self.cells.lock().len()).finish_non_exhaustive()
    }
}
