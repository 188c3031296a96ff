//! Grants for several generators in one process, and the model of every other store of grants.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use onlyonce_core::{Clock, SystemClock};
use parking_lot::Mutex;

use super::{Grant, GrantError, Grants, Holder, Request};

/// Grants that live as long as this process. Clones share them.
#[derive(Debug, Clone)]
pub struct MemoryGrants {
    held: Arc<Mutex<BTreeMap<u64, Held>>>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    holder: Holder,
    from: u64,
    until: u64,
}

impl Default for MemoryGrants {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryGrants {
    /// Nothing is granted yet.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(SystemClock)
    }

    /// The same, by another clock.
    #[must_use]
    pub fn with_clock(clock: impl Clock) -> Self {
        Self { held: Arc::default(), clock: Arc::new(clock) }
    }
}

#[async_trait]
impl Grants for MemoryGrants {
    async fn grant(&self, request: &Request) -> Result<Grant, GrantError> {
        let now = self.clock.wall_micros() / 1000;
        let until = now.saturating_add(u64::try_from(request.span.as_millis()).unwrap_or(u64::MAX));
        let mut held = self.held.lock();
        if let Some(worker) = request.worker
            && let Some(own) = held.get_mut(&worker).filter(|own| own.holder == request.holder)
        {
            own.until = own.until.max(until);
            return Ok(Grant { worker, from: own.from, until: own.until });
        }
        // The number that has been free for longest, so that a number rests before it is used again.
        let idle = held.iter().filter(|(_, held)| held.until <= now).min_by_key(|(_, held)| held.until);
        let worker = match idle {
            Some((worker, _)) => *worker,
            None if (held.len() as u64) < request.workers => held.len() as u64,
            None => return Err(GrantError::Exhausted { workers: request.workers }),
        };
        held.insert(worker, Held { holder: request.holder, from: now, until });
        Ok(Grant { worker, from: now, until })
    }

    async fn release(&self, holder: Holder, worker: u64, used_until: u64) -> Result<(), GrantError> {
        let mut held = self.held.lock();
        if let Some(own) = held.get_mut(&worker).filter(|own| own.holder == holder) {
            own.until = own.until.min(used_until.max(own.from));
            // Nobody has it any more, and its last holder must not come back to it.
            own.holder = Holder::random();
        }
        Ok(())
    }
}
