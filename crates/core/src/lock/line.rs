//! Who wants the same lock in this process: one line a lock, first come first served. Only its head asks the backend.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::name::LockName;
use crate::clock::{Clock, Moment};
use crate::lease::Lease;

const SHARDS: usize = 16;

/// All lines. A line is there while somebody stands in it.
#[derive(Debug, Default)]
pub(super) struct Lines {
    hasher: RandomState,
    shards: [Mutex<HashMap<LockName, Arc<Line>>>; SHARDS],
}

#[derive(Debug)]
struct Line {
    /// One permit: the turn. Waiters are served in their order.
    turn: Arc<Semaphore>,
    /// Who has the turn, once the lock is held.
    holder: Mutex<Option<Arc<Lease>>>,
}

/// A place in a line.
#[derive(Debug)]
pub(super) struct Place {
    lines: Arc<Lines>,
    name: LockName,
    line: Arc<Line>,
}

/// The turn of a line, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    // Given back before the place is left: whoever is last in a line removes it.
    permit: Option<OwnedSemaphorePermit>,
    place: Place,
}

impl Lines {
    pub(super) fn join(self: &Arc<Self>, name: &LockName) -> Place {
        let mut shard = self.shard(name).lock();
        let line = match shard.get(name) {
            Some(line) => Arc::clone(line),
            None => {
                let line = Line { turn: Arc::new(Semaphore::new(1)), holder: Mutex::new(None) };
                Arc::clone(shard.entry(name.clone()).or_insert(Arc::new(line)))
            }
        };
        drop(shard);
        Place { lines: Arc::clone(self), name: name.clone(), line }
    }

    fn shard(&self, name: &LockName) -> &Mutex<HashMap<LockName, Arc<Line>>> {
        &self.shards[self.hasher.hash_one(name) as usize % SHARDS]
    }
}

impl Place {
    /// The turn, if nobody has it and nobody waits for it.
    pub(super) fn try_turn(self) -> Result<Turn, Self> {
        match Arc::clone(&self.line.turn).try_acquire_owned() {
            Ok(permit) => Ok(Turn { permit: Some(permit), place: self }),
            Err(_) => Err(self),
        }
    }

    /// The turn, when it comes.
    pub(super) async fn turn(self) -> Turn {
        // A line is never closed, so there is no error; without a permit it would only be a line less orderly.
        let permit = Arc::clone(&self.line.turn).acquire_owned().await.ok();
        Turn { permit, place: self }
    }

    /// How long the holder in this process has its lock if it is not renewed.
    pub(super) fn free_in(&self, clock: &dyn Clock) -> Option<Duration> {
        let deadline = self.line.holder.lock().as_ref().map(|lease| lease.deadline());
        deadline.map(|deadline: Moment| deadline.since(clock.now()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut shard = self.lines.shard(&self.name).lock();
        // The line itself and this place. Everybody joins under this lock, so nobody comes between.
        if Arc::strong_count(&self.line) == 2 {
            shard.remove(&self.name);
        }
    }
}

impl Turn {
    pub(super) fn held_under(&self, lease: &Arc<Lease>) {
        *self.place.line.holder.lock() = Some(Arc::clone(lease));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.place.line.holder.lock() = None;
        drop(self.permit.take());
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_line_is_served_in_order_and_gone_with_its_last_place() {
        let lines = Arc::new(Lines::default());
        let name = LockName::new("a").unwrap();
        let first = lines.join(&name).try_turn().unwrap();
        let place = lines.join(&name).try_turn().unwrap_err();
        let mut second = Box::pin(place.turn());
        let mut third = Box::pin(lines.join(&name).turn());
        assert!((&mut second).now_or_never().is_none());
        assert!((&mut third).now_or_never().is_none());
        drop(first);
        assert!((&mut third).now_or_never().is_none(), "the third before the second");
        drop(second.await);
        drop(third.await);
        assert!(lines.shards.iter().all(|shard| shard.lock().is_empty()));
    }
}
