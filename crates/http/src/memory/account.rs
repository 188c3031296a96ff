//! What one connection, or the layer, holds of the budget.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::OwnedSemaphorePermit;

use super::{Budget, Eviction, EvictionMark, Holdings, ORDER, Place, Purpose, Size};

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
        Reservation { account: self.clone(), bytes: 0, loose: true, is_large_answer: false, overdraft: None }
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

    /// Whether it was asked to give way and still holds what it was asked for.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.0.holdings.pledged.load(Ordering::SeqCst) > 0
    }

    /// Where the size of the last answer to a method and path is noted.
    pub(crate) fn place(&self, method: &http::Method, path: &str) -> Place {
        self.0.budget.sizes.place(method, path)
    }

    /// Whether there is hope for the answer of a call, by what the last one took.
    pub(crate) fn may_begin(&self, place: Place) -> bool {
        self.0.budget.may_begin(place)
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
    /// It counts as that of a large answer.
    is_large_answer: bool,
    /// It is beyond the limit, and the only one.
    overdraft: Option<OwnedSemaphorePermit>,
}

impl Reservation {
    /// Takes more. Returns whether there was room.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let Handle { budget, holdings, .. } = &*self.account.0;
        let least = holdings.spare().saturating_add(bytes);
        if !budget.try_add(bytes, Purpose::Request) && !budget.take_from_others(bytes, least) {
            return false;
        }
        self.note(bytes);
        true
    }

    /// Takes more for an answer of a call that ran, as soon as there is room: from the reserve too, from whoever gives something up, and
    /// when its turn comes beyond the limit.
    pub(super) async fn grow_for_answer(&mut self, bytes: usize) {
        let budget = Arc::clone(&self.account.0.budget);
        let large = match Size::of(self.bytes.saturating_add(bytes)) {
            Size::Small => 0,
            Size::Large if self.is_large_answer => bytes,
            Size::Large => self.bytes.saturating_add(bytes),
        };
        if self.overdraft.is_some() {
            // It has its turn, and goes on until it is whole.
            budget.used.fetch_add(bytes, ORDER);
            budget.answers.fetch_add(large, ORDER);
        } else if !budget.try_add_answer(bytes, large) {
            self.overdraft = budget.room_for_answer(bytes, large).await;
        }
        self.is_large_answer = large > 0;
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

    /// Whether its answer may wait for a reader of whom nobody knows when he reads: not beyond the limit, because nobody would get room
    /// before he has read it.
    pub(crate) fn may_wait(&self) -> bool {
        let Handle { budget, readers, .. } = &*self.account.0;
        self.overdraft.is_none() || *readers == Readers::AreCutOff || budget.ask_others(0, Purpose::Answer, 0)
    }

    /// Its call has ended: from now on it is for what waits for a reader.
    pub(crate) fn for_reader(&mut self) {
        let Handle { holdings, readers, .. } = &*self.account.0;
        match readers {
            Readers::Wait => self.keep(),
            Readers::AreCutOff if self.loose => {}
            Readers::AreCutOff => {
                self.loose = true;
                holdings.loose.fetch_add(self.bytes, ORDER);
            }
        }
        // Nothing is left to others because of it any more: it gives way, or no more calls begin.
        if std::mem::take(&mut self.is_large_answer) {
            self.account.0.budget.answers.fetch_sub(self.bytes, Ordering::SeqCst);
        }
        if self.may_wait() {
            self.overdraft = None;
        }
        self.account.0.budget.wake_answers();
    }

    /// Notes what the answer took, for the calls that come.
    pub(super) fn note_size(&self, place: Place) {
        self.account.0.budget.sizes.note(place, Size::of(self.bytes));
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let budget = &self.account.0.budget;
        if self.is_large_answer {
            budget.answers.fetch_sub(self.bytes, Ordering::SeqCst);
        }
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
