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
    shards: [Mutex<HashMap<LockName, Standing>>; SHARDS],
}

/// A line, and how many stand in it: counted under the lock of its shard, where it is joined and left.
#[derive(Debug)]
struct Standing {
    line: Arc<Line>,
    places: usize,
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
        let standing = shard.entry(name.clone()).or_insert_with(|| {
            let line = Line { turn: Arc::new(Semaphore::new(1)), holder: Mutex::new(None) };
            Standing { line: Arc::new(line), places: 0 }
        });
        standing.places += 1;
        let line = Arc::clone(&standing.line);
        drop(shard);
        Place { lines: Arc::clone(self), name: name.clone(), line }
    }

    fn shard(&self, name: &LockName) -> &Mutex<HashMap<LockName, Standing>> {
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
        if let Some(standing) = shard.get_mut(&self.name) {
            standing.places -= 1;
            if standing.places == 0 {
                shard.remove(&self.name);
            }
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

    #[test]
    fn two_who_leave_at_the_same_moment_leave_no_line_behind() {
        let lines = Arc::new(Lines::default());
        let gate = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 0..40 {
                        let names = (0..1000).map(|n| LockName::new(format!("{round} {n}")).unwrap());
                        let places: Vec<_> = names.map(|name| lines.join(&name)).collect();
                        gate.wait();
                        drop(places);
                    }
                });
            }
        });
        let left: usize = lines.shards.iter().map(|shard| shard.lock().len()).sum();
        assert_eq!(left, 0, "names of which nobody wants the lock");
    }
}
