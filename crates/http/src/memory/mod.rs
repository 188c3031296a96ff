//! One budget of memory for all that is buffered: bodies that are read, answers, and what waits for its reader.
//!
//! Whoever buffers takes a [`Reservation`] on an [`Account`] of the [`MemoryBudget`]. Three quarters of it are for what has not begun; the
//! rest is a reserve for answers of calls that ran. When it is full, the account with the most that can be given up gives way to
//! smaller ones, so that a greedy connection can't shut out the others.

mod account;
mod body;
mod eviction;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

pub use account::{Account, Reservation};
use account::{Handle, Readers};
pub(crate) use body::{BodyMemory, NoRoom};
pub use eviction::{Eviction, EvictionMark};

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
    register: Mutex<Register>,
    /// Whoever has it may finish reading an answer beyond the limit: one at a time, so that all get their turn.
    overdraft: Arc<Semaphore>,
    /// How many answers wait for room, and what wakes them.
    waiting: AtomicUsize,
    freed: Notify,
}

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
            register: Mutex::default(),
            overdraft: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
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

    fn try_add(&self, bytes: usize, cap: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= cap);
        self.used.fetch_update(ORDER, ORDER, more).is_ok()
    }

    /// Takes what others give up, if there is one with more than `least`. Returns whether it was taken.
    fn take_from_others(&self, bytes: usize, cap: usize, least: usize) -> bool {
        let mut register = self.register.lock();
        register.forget_what_is_gone();
        let fits =
            |pledged: usize| self.used.load(ORDER).saturating_sub(pledged).saturating_add(bytes) <= cap;
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
        self.used.fetch_add(bytes, ORDER);
        true
    }

    /// Waits until an answer of a call that ran has room, which `has_room` takes.
    async fn until(&self, has_room: impl Fn() -> bool) {
        let _waits = Waits::new(&self.waiting);
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            if has_room() {
                return;
            }
            freed.await;
        }
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

/// One more that waits, until it is dropped.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        // Whoever gives something back afterwards sees this; what was given back before is seen here.
        fence(Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBudget").field("limit", &self.limit()).field("used", &self.used()).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_greediest_gives_way_to_smaller_ones_and_never_to_greedier_ones() {
        let budget = MemoryBudget::new(400);
        let (greedy, modest) = (budget.account(), budget.account());
        let held = greedy.take(290).unwrap();
        let (asked, spared) = (greedy.eviction(), modest.eviction());
        assert!(greedy.take(20).is_none(), "a quarter is a reserve, and nobody is greedier");
        let _small = modest.take(20).unwrap();
        assert!(asked.is_asked() && !spared.is_asked());
        // What was asked for counts as free: nobody is asked twice for it.
        let _more = modest.take(200).unwrap();
        assert!(!spared.is_asked());
        drop(held);
        assert_eq!(budget.used(), 220);
        assert!(greedy.take(70).is_some(), "what was given up is there again");
        assert!(greedy.take(100).is_some() && spared.is_asked(), "now the other is the greedier one");
    }

    #[test]
    fn what_was_given_up_while_it_was_asked_for_is_not_as_good_as_free() {
        let budget = MemoryBudget::new(400);
        let (first, other) = (budget.account(), budget.account());
        let pledge = |account: &Account| {
            account.0.holdings.pledged.fetch_add(100, ORDER);
            budget.0.register.lock().pledged += 100;
        };
        pledge(&first);
        let _all = other.take(300).unwrap();
        assert!(other.take(50).is_none(), "nobody has anything to give");
        assert_eq!(budget.0.register.lock().pledged, 0);
        pledge(&first);
        drop(first);
        assert_eq!(budget.0.register.lock().pledged, 0);
    }

    #[test]
    fn a_request_notices_what_was_asked_before_it_looked() {
        let budget = MemoryBudget::new(400);
        let (greedy, modest) = (budget.account(), budget.account());
        let mark = greedy.mark();
        let _held = greedy.take(290).unwrap();
        let _small = modest.take(20).unwrap();
        assert!(greedy.eviction_since(mark).is_asked());
        assert!(!greedy.eviction().is_asked(), "the next one was not asked");
    }

    #[test]
    fn an_answer_that_waits_for_its_turn_takes_what_others_give_back() {
        let budget = MemoryBudget::new(400);
        let (calls, first, second) = (budget.account(), budget.account(), budget.account());
        let mut running = calls.take(290).unwrap();
        running.keep();
        let (mut slow, mut quick) = (first.nothing(), second.nothing());
        slow.keep();
        quick.keep();
        slow.grow_for_answer(200).now_or_never().expect("the first may go beyond the limit");
        let mut waits = Box::pin(quick.grow_for_answer(100));
        assert!(waits.as_mut().now_or_never().is_none(), "one at a time");
        drop(running);
        assert!(waits.as_mut().now_or_never().is_some(), "there is room, though the other is not done");
        drop(waits);
        assert_eq!(budget.used(), 300);
        drop((slow, quick));
        assert_eq!((budget.used(), budget.0.waiting.load(ORDER)), (0, 0));
    }

    #[test]
    fn what_is_kept_is_not_asked_for() {
        let budget = MemoryBudget::new(400);
        let (busy, other) = (budget.account(), budget.account());
        let mut running = busy.take(290).unwrap();
        running.keep();
        assert!(other.take(20).is_none());
        drop(running);
        assert!(other.take(20).is_some());
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn answers_have_a_reserve_and_then_take_turns() {
        let budget = MemoryBudget::new(400);
        let account = budget.account();
        let mut request = account.take(300).unwrap();
        request.keep();
        let (mut first, mut second) = (BodyMemory::of_answer(&account), BodyMemory::of_answer(&account));
        first.pay(50).await.unwrap();
        // Beyond the limit: one of them goes on, the other waits for its turn.
        first.pay(50).await.unwrap();
        let mut waiting = Box::pin(second.pay(50));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(first);
        waiting.await.unwrap();
        drop((second, request));
        assert_eq!(budget.used(), 0);
    }
}
