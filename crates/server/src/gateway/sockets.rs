//! The sockets for connections to upstreams.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::upstream::Pool;

/// How often those who wait look for connections that nobody uses.
const LOOK: Duration = Duration::from_millis(100);

/// How many sockets there may be, for all upstreams together.
pub(crate) struct Sockets {
    places: Arc<Semaphore>,
    /// Where connections that nobody uses hold some of them.
    pools: Mutex<Vec<Weak<Pool>>>,
}

impl Sockets {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Arc::new(Self { places, pools: Mutex::default() })
    }

    /// A new pool, whose idle connections give way.
    pub(crate) fn pool(&self) -> Arc<Pool> {
        let (pool, mut pools) = (Arc::new(Pool::default()), self.pools.lock());
        pools.retain(|known| known.strong_count() > 0);
        pools.push(Arc::downgrade(&pool));
        pool
    }

    /// Waits for a place for one more socket.
    pub(crate) async fn place(&self) -> Result<OwnedSemaphorePermit, String> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        // In the order of coming. Whoever waits looks again: connections fall idle while it does.
        let mut place = std::pin::pin!(Arc::clone(&self.places).acquire_owned());
        loop {
            // Connections that nobody uses, to whatever upstream, are worth less than this one.
            let pools: Vec<Arc<Pool>> = self.pools.lock().iter().filter_map(Weak::upgrade).collect();
            pools.iter().for_each(|pool| pool.close_idle());
            if let Ok(place) = tokio::time::timeout(LOOK, place.as_mut()).await {
                return place.map_err(|error| error.to_string());
            }
        }
    }
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets").field("free", &self.places.available_permits()).finish_non_exhaustive()
    }
}
