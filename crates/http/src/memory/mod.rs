//! One budget of memory for all that is buffered: bodies that are read, answers, and what waits for its reader.
//!
//! Whoever buffers takes a [`Reservation`] on an [`Account`] of the [`MemoryBudget`]. Three quarters of it are for what has not begun; the
//! rest is a reserve for answers of calls that ran. Nor do large answers get more than three quarters: a crowd of them leaves a quarter to
//! those who want little, and while many wait no more calls begin whose last answer was large. When it is full, the account with the most
//! that can be given up gives way to smaller ones, so that a greedy connection can't shut out the others.
//!
//! An answer of a call that ran waits until it has room. One at a time goes beyond the limit, and only while the others are within it: so
//! no more is used than the limit and one answer, and nobody waits for somebody who waits.

mod account;
mod body;
mod eviction;
mod sizes;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

pub use account::{Account, Reservation};
use account::{Handle, Readers};
pub(crate) use body::{BodyMemory, NoRoom};
pub use eviction::{Eviction, EvictionMark};
use sizes::LastSizes;
pub(crate) use sizes::Place;

/// The memory that may be buffered by all calls together; clones share it.
///
/// ```
/// use onlyonce_http::MemoryBudget;
/// let budget = MemoryBudget::new(64 << 20);
/// let account = budget.account();
/// let reserved = account.take(1 << 20).expect("there is room");
/// assert_eq!(budget.used(), 1 << 20);
/// drop(reserved);
/// assert_eq!(budget.used(), 0);
/// ```
#[derive(Clone)]
pub struct MemoryBudget(Arc<Budget>);

struct Budget {
    limit: usize,
    used: AtomicUsize,
    /// What of it is held by large answers whose calls have not ended.
    answers: AtomicUsize,
    register: Mutex<Register>,
    /// Whoever has it may finish reading an answer beyond the limit: one at a time, so that all get their turn.
    overdraft: Arc<Semaphore>,
    /// How many answers wait for room, and what wakes them.
    waiting: AtomicUsize,
    freed: Notify,
    sizes: LastSizes,
}

/// While so many answers wait for room, no call begins whose answer will probably be large.
const MOST_WAITING: usize = 16;

#[derive(Default)]
struct Register {
    accounts: HashMap<u64, Arc<Holdings>>,
    next: u64,
    /// What was asked to give way and has not done so yet. It is as good as free.
    pledged: usize,
}

impl Register {
    /// What was given up in the moment in which it was asked for is pledged no more.
    fn forget_what_is_gone(&mut self) {
        for holdings in self.accounts.values() {
            let pledged = holdings.pledged.load(ORDER);
            let gone = pledged.saturating_sub(holdings.loose.load(ORDER));
            holdings.pledged.store(pledged - gone, ORDER);
            self.pledged = self.pledged.saturating_sub(gone);
        }
    }
}

/// What one account holds.
#[derive(Default)]
struct Holdings {
    /// What can be given up at any time.
    loose: AtomicUsize,
    /// What of it was asked to give way. Changes only under the register's lock.
    pledged: AtomicUsize,
    /// How often it was asked to.
    evictions: AtomicU64,
    wake: Arc<Notify>,
}

impl Holdings {
    fn spare(&self) -> usize {
        self.loose.load(ORDER).saturating_sub(self.pledged.load(ORDER))
    }
}

const ORDER: Ordering = Ordering::Relaxed;

impl MemoryBudget {
    /// What a layer or gateway gets if nobody says, in bytes.
    pub const DEFAULT: usize = 256 << 20;

    /// A budget of this many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Budget {
            limit: bytes,
            used: AtomicUsize::new(0),
            answers: AtomicUsize::new(0),
            register: Mutex::default(),
            overdraft: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            sizes: LastSizes::default(),
        }))
    }

    /// How many bytes are taken.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(ORDER)
    }

    /// How many bytes there are.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// How many of them there are for calls that have not begun: the rest is a reserve.
    pub(crate) fn ordinary(&self) -> usize {
        self.0.ordinary()
    }

    /// A new account. Bodies that are read for it give way to others; its answers do not.
    #[must_use]
    pub fn account(&self) -> Account {
        self.open(Readers::Wait)
    }

    /// The account of a connection whose owner watches its [`eviction`](Account::eviction), and then cuts off readers that
    /// do not read: answers that wait for them are given up too.
    #[must_use]
    pub fn account_of_connection(&self) -> Account {
        self.open(Readers::AreCutOff)
    }

    fn open(&self, readers: Readers) -> Account {
        let holdings = Arc::new(Holdings::default());
        let number = {
            let mut register = self.0.register.lock();
            register.next += 1;
            let number = register.next;
            register.accounts.insert(number, Arc::clone(&holdings));
            number
        };
        Account(Arc::new(Handle { budget: Arc::clone(&self.0), holdings, number, readers }))
    }
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::new(Self::DEFAULT)
    }
}

impl Budget {
    /// What is there for all that has not begun.
    fn ordinary(&self) -> usize {
        self.limit - self.limit / 4
    }

    /// Whether a reservation for this purpose may take `bytes` more if `used` are taken.
    fn fits(&self, used: usize, bytes: usize, purpose: Purpose) -> bool {
        let sum = used.saturating_add(bytes);
        match purpose {
            Purpose::Answer => sum <= self.limit,
            // However much the answers of others take, a quarter is for those who want to begin.
            Purpose::Request => {
                sum <= self.ordinary() || sum.saturating_sub(self.answers.load(ORDER)) <= self.limit / 4
            }
        }
    }

    fn try_add(&self, bytes: usize, purpose: Purpose) -> bool {
        let more = |used: usize| self.fits(used, bytes, purpose).then(|| used.saturating_add(bytes));
        self.used.fetch_update(ORDER, ORDER, more).is_ok()
    }

    /// Takes memory for an answer if there is some. `large` is how much more of it counts as that of large ones.
    fn try_add_answer(&self, bytes: usize, large: usize) -> bool {
        let more = |answers: usize| answers.checked_add(large).filter(|sum| *sum <= self.ordinary());
        if large > 0 && self.answers.fetch_update(ORDER, ORDER, more).is_err() {
            return false;
        }
        let has_room = self.try_add(bytes, Purpose::Answer);
        if !has_room {
            self.answers.fetch_sub(large, ORDER);
        }
        has_room
    }

    /// Takes memory for the one answer that may go beyond the limit, if all that is there is within it.
    fn try_go_beyond(&self, bytes: usize, large: usize) -> bool {
        let more = |used: usize| (used <= self.limit).then(|| used.saturating_add(bytes));
        let may = self.used.fetch_update(ORDER, ORDER, more).is_ok();
        if may {
            self.answers.fetch_add(large, ORDER);
        }
        may
    }

    /// Takes for a request what others give up, if there is one with more than `least`. Returns whether it was taken.
    fn take_from_others(&self, bytes: usize, least: usize) -> bool {
        // What was asked for is there until it was given up, and may be beyond what is for requests, but not beyond the limit.
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.ask_others(bytes, Purpose::Request, least) && self.used.fetch_update(ORDER, ORDER, more).is_ok()
    }

    /// Asks those who hold the most, and more than `least`, to give way, until that would be enough. Returns whether it is.
    fn ask_others(&self, bytes: usize, purpose: Purpose, least: usize) -> bool {
        if self.fits(self.used.load(ORDER), bytes, purpose) {
            return true;
        }
        let mut register = self.register.lock();
        register.forget_what_is_gone();
        let fits = |pledged: usize| self.fits(self.used.load(ORDER).saturating_sub(pledged), bytes, purpose);
        while !fits(register.pledged) {
            let greediest = register.accounts.values().max_by_key(|holdings| holdings.spare());
            let Some(greediest) = greediest.filter(|holdings| holdings.spare() > least).cloned() else {
                return false;
            };
            let spare = greediest.spare();
            greediest.pledged.fetch_add(spare, ORDER);
            greediest.evictions.fetch_add(1, Ordering::SeqCst);
            greediest.wake.notify_waiters();
            register.pledged += spare;
        }
        true
    }

    /// Waits until an answer of a call that ran has room, and takes it: what others give back or give up, or, when its turn comes, beyond
    /// the limit. Then it returns what says so.
    async fn room_for_answer(self: &Arc<Self>, bytes: usize, large: usize) -> Option<OwnedSemaphorePermit> {
        let _waits = Waits::new(self);
        let mut line = Box::pin(Arc::clone(&self.overdraft).acquire_owned());
        let (mut turn, mut asked) = (None, false);
        loop {
            let mut freed = Box::pin(self.freed.notified());
            freed.as_mut().enable();
            if self.try_add_answer(bytes, large) {
                return None;
            }
            if turn.is_some() && self.try_go_beyond(bytes, large) {
                self.ask_others(0, Purpose::Answer, 0);
                return turn;
            }
            // Each asks when it comes, and then only the first in line: hundreds may wait, and all of them are woken.
            if turn.is_some() || !std::mem::replace(&mut asked, true) {
                self.ask_others(bytes, Purpose::Answer, 0);
            }
            if turn.is_some() {
                freed.await;
            } else if let Either::Left((permit, _)) = select(line.as_mut(), freed).await {
                // It is never closed.
                turn = permit.ok();
            }
        }
    }

    /// Whether a call may begin: not if its answer, like the one before it, would only add to a crowd of large ones that wait.
    fn may_begin(&self, place: Place) -> bool {
        self.waiting.load(ORDER) < MOST_WAITING || !self.sizes.is_large(place)
    }

    /// Something was given back.
    fn wake_answers(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }

    /// A part of what is loose is so no more.
    fn fix(&self, holdings: &Holdings, bytes: usize) {
        holdings.loose.fetch_sub(bytes, ORDER);
        if holdings.pledged.load(ORDER) > 0 {
            let mut register = self.register.lock();
            let kept = holdings.pledged.load(ORDER).min(bytes);
            holdings.pledged.fetch_sub(kept, ORDER);
            register.pledged = register.pledged.saturating_sub(kept);
        }
    }
}

/// What memory is taken for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A call that has not begun.
    Request,
    /// The answer of one that ran.
    Answer,
}

/// How much an answer takes: all of it where its length is known, and otherwise as far as it has come. Small ones take next to nothing, and
/// do not wait behind large ones: the quarter that is not for those is for them too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    Small,
    Large,
}

impl Size {
    const SMALL: usize = 32 << 10;

    fn of(bytes: usize) -> Self {
        if bytes <= Self::SMALL { Self::Small } else { Self::Large }
    }
}

/// One more that waits, until it is dropped.
struct Waits<'a>(&'a Budget);

impl<'a> Waits<'a> {
    fn new(budget: &'a Budget) -> Self {
        budget.waiting.fetch_add(1, Ordering::SeqCst);
        // Whoever gives something back afterwards sees this; what was given back before is seen here.
        fence(Ordering::SeqCst);
        Self(budget)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBudget").field("limit", &self.limit()).field("used", &self.used()).finish()
    }
}

#[cfg(test)]
mod tests;
