//! Locks in this process's memory: for tests, for a single process, and as the reference for other backends.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::backend::{Acquired, LockBackend, Release, Renewed};
use super::name::LockName;
use crate::clock::{Clock, Moment, SystemClock};
use crate::error::StoreError;
use crate::record::{Fence, Owner};

/// Locks in memory. Clones are the same locks, as if they were servers' clients.
///
/// ```
/// use onlyonce_core::lock::{Locks, MemoryLocks};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onlyonce_core::lock::LockError> {
/// let server = MemoryLocks::new();
/// let (here, there) = (Locks::new(server.clone()), Locks::new(server));
/// let guard = here.key("a").acquire().await?;
/// assert!(there.key("a").acquire().await.is_err());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct MemoryLocks {
    clock: Arc<dyn Clock>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    table: Mutex<Table>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    held: HashMap<LockName, (Owner, Moment)>,
    last_fence: u64,
}

/// Beyond this many, those that have run out are removed.
const MANY: usize = 1024;

impl Table {
    /// Who has it at `now`, and until when.
    fn holder(&self, name: &LockName, now: Moment) -> Option<(Owner, Moment)> {
        self.held.get(name).copied().filter(|(_, until)| now < *until)
    }
}

impl Default for MemoryLocks {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryLocks {
    /// No lock is held.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(SystemClock)
    }

    /// Takes time from `clock`.
    #[must_use]
    pub fn with_clock(clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), state: Arc::default() }
    }

    /// How many locks are held.
    #[must_use]
    pub fn len(&self) -> usize {
        let now = self.clock.now();
        self.state.table.lock().held.values().filter(|(_, until)| now < *until).count()
    }

    /// Forgets all locks, as a server that restarts empty: for tests. Fences go on rising.
    pub fn clear(&self) {
        self.state.table.lock().held.clear();
        self.state.freed.notify_waiters();
    }

    /// Whether no lock is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[async_trait]
impl LockBackend for MemoryLocks {
    type Proof = Fence;

    async fn acquire(
        &self,
        name: &LockName,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Acquired<Fence>, StoreError> {
        let now = self.clock.now();
        let mut table = self.state.table.lock();
        if let Some((holder, until)) = table.holder(name, now)
            && holder != *owner
        {
            return Ok(Acquired::Taken { free_in: Some(until.since(now)) });
        }
        if table.held.len() >= MANY {
            table.held.retain(|_, (_, until)| now < *until);
        }
        table.held.insert(name.clone(), (*owner, now.plus(ttl)));
        table.last_fence = (table.last_fence + 1).max(self.clock.wall_micros());
        Ok(Acquired::Granted(Fence(table.last_fence)))
    }

    async fn renew(&self, name: &LockName, owner: &Owner, ttl: Duration) -> Result<Renewed, StoreError> {
        let now = self.clock.now();
        let mut table = self.state.table.lock();
        match table.holder(name, now) {
            Some((holder, _)) if holder == *owner => {
                table.held.insert(name.clone(), (*owner, now.plus(ttl)));
                Ok(Renewed::Renewed)
            }
            _ => Ok(Renewed::Lost),
        }
    }

    async fn release(&self, name: &LockName, owner: &Owner) -> Result<Release, StoreError> {
        let now = self.clock.now();
        let mut table = self.state.table.lock();
        let released = match table.holder(name, now) {
            None => Release::AlreadyExpired,
            Some((holder, _)) if holder != *owner => Release::TakenOver,
            Some(_) => {
                table.held.remove(name);
                Release::Released
            }
        };
        drop(table);
        self.state.freed.notify_waiters();
        Ok(released)
    }

    async fn freed(&self, name: &LockName, timeout: Duration) {
        let give_up = self.clock.now().plus(timeout);
        loop {
            let freed = self.state.freed.notified();
            tokio::pin!(freed);
            // Enlisted before the look, so that a release between the look and the wait is not missed.
            freed.as_mut().enable();
            let now = self.clock.now();
            let holder = self.state.table.lock().holder(name, now);
            let Some((_, until)) = holder else { return };
            if now >= give_up {
                return;
            }
            tokio::select! {
                () = freed => {}
                () = self.clock.sleep(until.min(give_up).since(now)) => {}
            }
        }
    }
}
