//! Places for connections. When there are none left, one whose caller seems to have left gives way, or the one that has been without a
//! request for longest.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::serve::GOODBYE;
use super::wire::Doings;

/// The places of a listener.
#[derive(Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    limit: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    connections: HashMap<u64, Arc<Doings>>,
}

/// The place of a connection, as long as its socket is there: also while it speaks another protocol.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { free: Arc::new(Semaphore::new(limit)), limit, taken: Mutex::default() })
    }

    /// How many connections there are.
    pub(crate) fn taken(&self) -> usize {
        self.limit - self.free.available_permits()
    }

    /// Waits for a place for somebody who has come, and asks another one to leave if there is none.
    pub(crate) async fn take(self: &Arc<Self>, doings: &Arc<Doings>) -> Option<Place> {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
                break permit;
            }
            self.ask_longest_idle();
            // Whoever was asked may have got a request in that moment; then it is another one's turn.
            if let Ok(permit) =
                tokio::time::timeout(2 * GOODBYE, Arc::clone(&self.free).acquire_owned()).await
            {
                break permit.ok()?;
            }
        };
        let mut taken = self.taken.lock();
        taken.next += 1;
        let number = taken.next;
        taken.connections.insert(number, Arc::clone(doings));
        Some(Place { places: Arc::clone(self), number, _permit: permit })
    }

    fn ask_longest_idle(&self) {
        let taken = self.taken.lock();
        let idle = taken.connections.iter().filter(|(_, doings)| doings.may_leave());
        if let Some((_, longest)) = idle
            .max_by_key(|(number, doings)| (doings.is_half_closed(), doings.quiet_looks(), Reverse(**number)))
        {
            longest.ask_to_leave();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The permit goes back after this: a number is never there twice.
        self.places.taken.lock().connections.remove(&self.number);
    }
}
