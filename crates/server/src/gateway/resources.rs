//! What a gateway has for as long as it runs: memory, places for callers, sockets for upstreams.

use std::sync::Arc;

use onlyonce::http::MemoryBudget;
use tokio::sync::Semaphore;

use super::descriptors::Descriptors;
use super::places::Places;
use super::sockets::Sockets;
use crate::config::Limits;

/// What all connections and upstreams share.
#[derive(Debug)]
pub(crate) struct Resources {
    /// For all that is buffered.
    pub(crate) memory: MemoryBudget,
    /// For connections of callers.
    pub(crate) places: Arc<Places>,
    /// For connections to upstreams.
    pub(crate) sockets: Arc<Sockets>,
    /// For requests that may be silent for as long as they like.
    pub(crate) quiet: Arc<Semaphore>,
}

/// Each holds memory of the budget, and a stream to its upstream.
const MOST_QUIET: usize = 1024;

impl Resources {
    pub(crate) fn new(limits: &Limits, descriptors: Descriptors) -> Self {
        Self {
            memory: MemoryBudget::new(limits.memory),
            places: Places::new(descriptors.callers),
            sockets: Sockets::new(descriptors.upstreams),
            // Each may have a connection of its own, and others need some too.
            quiet: Arc::new(Semaphore::new((descriptors.callers / 2).min(MOST_QUIET))),
        }
    }
}
