//! Hearing that an account has to give way.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::sync::futures::OwnedNotified;

use super::Account;

/// A moment: how often an account had been asked to give way.
#[derive(Debug, Clone, Copy)]
pub struct EvictionMark(pub(super) u64);

/// The wish that an account gives up what it can.
pub struct Eviction {
    account: Account,
    seen: u64,
    wake: Option<Pin<Box<OwnedNotified>>>,
}

impl Eviction {
    pub(super) fn new(account: Account, mark: EvictionMark) -> Self {
        Self { account, seen: mark.0, wake: None }
    }

    /// Whether the wish was uttered.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.account.0.holdings.evictions.load(Ordering::SeqCst) != self.seen
    }

    /// Ends when the wish is uttered.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let holdings = &self.account.0.holdings;
            // Made before the look, so that a wish in between is not missed.
            let wake = self.wake.get_or_insert_with(|| Box::pin(Arc::clone(&holdings.wake).notified_owned()));
            if holdings.evictions.load(Ordering::SeqCst) != self.seen {
                return Poll::Ready(());
            }
            ready!(wake.as_mut().poll(cx));
            self.wake = None;
        }
    }
}

impl fmt::Debug for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Eviction").field("asked", &self.is_asked()).finish_non_exhaustive()
    }
}
