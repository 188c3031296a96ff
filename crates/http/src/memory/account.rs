//! What one connection, or the layer, holds of the budget.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::{Either, select};
use tokio::sync::OwnedSemaphorePermit;

use super::{Budget, Eviction, EvictionMark, Holdings, ORDER};

/// What one holder of buffers has taken, for instance a connection. Put into a request's extensions, it pays for the request.
#[derive(Clone)]
pub struct Account(pub(super) Arc<Handle>);

pub(super) struct Handle {
    pub(super) budget: Arc<Budget>,
    pub(super) holdings: Arc<Holdings>,
    pub(super) number: u64,
    pub(super) readers: Readers,
}

/// What happens to readers that do not read, where there is no memory for what waits for them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Readers {
    Wait,
    AreCutOff,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut register = self.budget.register.lock();
        register.accounts.remove(&self.number);
        // It holds nothing any more, whatever it was asked for.
        register.pledged = register.pledged.saturating_sub(self.holdings.pledged.load(ORDER));
    }
}

impl Account {
    /// Takes memory that can be given up again at any time; whoever holds it must watch [`eviction`](Self::eviction).
    ///
    /// Returns nothing if there is no room, and nobody holds more than this account would.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Option<Reservation> {
        let mut reserved = self.nothing();
        reserved.grow(bytes).then_some(reserved)
    }

    /// A reservation of nothing, which may grow.
    #[must_use]
    pub fn nothing(&self) -> Reservation {
        Reservation { account: self.clone(), bytes: 0, loose: true, overdraft: None }
    }

    /// Notices from now on that this account is asked to give way.
    #[must_use]
    pub fn eviction(&self) -> Eviction {
        self.eviction_since(self.mark())
    }

    /// Marks the moment before a request takes something. In the extensions of the request it makes sure that the layer notices what was
    /// asked since then, however late it looks.
    #[must_use]
    pub fn mark(&self) -> EvictionMark {
        EvictionMark(self.0.holdings.evictions.load(Ordering::SeqCst))
    }

    pub(crate) fn eviction_since(&self, mark: EvictionMark) -> Eviction {
        Eviction::new(self.clone(), mark)
    }
}

/// Memory that was taken; given back when it is dropped.
pub struct Reservation {
    account: Account,
    bytes: usize,
    loose: bool,
    /// It is beyond the limit, and the only one.
    overdraft: Option<OwnedSemaphorePermit>,
}

impl Reservation {
    /// Takes more. Returns whether there was room.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let Handle { budget, holdings, .. } = &*self.account.0;
        let cap = budget.ordinary();
        if !budget.try_add(bytes, cap)
            && !budget.take_from_others(bytes, cap, holdings.spare().saturating_add(bytes))
        {
            return false;
        }
        self.note(bytes);
        true
    }

    /// Takes more for an answer of a call that ran: from the reserve too, from whoever can give something up, and when its turn
    /// comes beyond the limit.
    pub(super) async fn grow_for_answer(&mut self, bytes: usize) {
        let budget = Arc::clone(&self.account.0.budget);
        let has_room =
            || budget.try_add(bytes, budget.limit) || budget.take_from_others(bytes, budget.limit, 0);
        if !has_room() {
            if self.overdraft.is_none() {
                // It is never closed.
                let turn = Box::pin(Arc::clone(&budget.overdraft).acquire_owned());
                match select(turn, Box::pin(budget.until(has_room))).await {
                    Either::Left((turn, _)) => self.overdraft = turn.ok(),
                    Either::Right(_) => return self.note(bytes),
                }
            }
            budget.used.fetch_add(bytes, ORDER);
        }
        self.note(bytes);
    }

    fn note(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.loose {
            self.account.0.holdings.loose.fetch_add(bytes, ORDER);
        }
    }

    /// It is needed from now on, and can't be given up.
    pub fn keep(&mut self) {
        if std::mem::take(&mut self.loose) {
            self.account.0.budget.fix(&self.account.0.holdings, self.bytes);
        }
    }

    /// From now on it is for what waits for a reader.
    pub(crate) fn for_reader(&mut self) {
        self.overdraft = None;
        match self.account.0.readers {
            Readers::Wait => self.keep(),
            Readers::AreCutOff if self.loose => {}
            Readers::AreCutOff => {
                self.loose = true;
                self.account.0.holdings.loose.fetch_add(self.bytes, ORDER);
            }
        }
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let budget = &self.account.0.budget;
        budget.used.fetch_sub(self.bytes, Ordering::SeqCst);
        if self.loose {
            budget.fix(&self.account.0.holdings, self.bytes);
        }
        budget.wake_answers();
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Account").field(&self.0.number).finish()
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("bytes", &self.bytes)
            .field("loose", &self.loose)
            .finish_non_exhaustive()
    }
}
