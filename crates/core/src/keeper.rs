//! The one background task of an engine: it renews leases, sweeps, and finishes work that was dropped.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::{Clock, Moment};

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Something to do again and again.
pub(crate) trait Chore: Send + Sync {
    fn ticket(&self) -> &Ticket;

    /// Does it once, and says when next; `None` to stop.
    fn run(self: Arc<Self>) -> BoxFuture<Option<Moment>>;
}

/// The place of a chore in the schedule.
#[derive(Debug)]
pub(crate) struct Ticket {
    number: u64,
    due: AtomicU64,
}

const CANCELLED: u64 = u64::MAX;

impl Ticket {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), due: AtomicU64::new(0) }
    }
}

/// The handle that an engine holds; the task ends after the last of them is gone and its jobs are handed over.
pub(crate) struct Keeper(Arc<Shared>);

struct Shared {
    clock: Arc<dyn Clock>,
    schedule: Mutex<Schedule>,
    jobs: Mutex<VecDeque<BoxFuture<()>>>,
    wake: Notify,
    running: AtomicBool,
    closed: AtomicBool,
}

struct Schedule {
    chores: BTreeMap<(u64, u64), Arc<dyn Chore>>,
    /// When the task will look next by itself: whoever comes due later need not wake it.
    sleeping_until: u64,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("chores", &self.0.schedule.lock().chores.len()).finish_non_exhaustive()
    }
}

impl Keeper {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Shared {
            clock,
            schedule: Mutex::new(Schedule { chores: BTreeMap::new(), sleeping_until: CANCELLED }),
            jobs: Mutex::default(),
            wake: Notify::new(),
            running: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }))
    }

    /// Starts the task unless it runs. Called from async code; a task that died with its runtime is started anew.
    pub(crate) fn ensure_running(&self) {
        if !self.0.running.load(Ordering::Acquire) && !self.0.running.swap(true, Ordering::AcqRel) {
            tokio::spawn(work(StopSign(Arc::clone(&self.0))));
        }
    }

    pub(crate) fn schedule(&self, chore: Arc<dyn Chore>, due: Moment) {
        self.0.schedule(chore, due);
    }

    pub(crate) fn cancel(&self, ticket: &Ticket) {
        let mut schedule = self.0.schedule.lock();
        let due = ticket.due.swap(CANCELLED, Ordering::Relaxed);
        schedule.chores.remove(&(due, ticket.number));
    }

    /// Hands over a job to be finished in the background. Safe in `Drop`: it neither spawns nor blocks.
    pub(crate) fn finish_later(&self, job: BoxFuture<()>) {
        self.0.jobs.lock().push_back(job);
        self.0.wake.notify_one();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.wake.notify_one();
    }
}

impl Shared {
    fn schedule(&self, chore: Arc<dyn Chore>, due: Moment) {
        let due = due.as_micros();
        let mut schedule = self.schedule.lock();
        let ticket = chore.ticket();
        if ticket.due.swap(due, Ordering::Relaxed) == CANCELLED {
            ticket.due.store(CANCELLED, Ordering::Relaxed);
            return;
        }
        let number = ticket.number;
        schedule.chores.insert((due, number), chore);
        if due < schedule.sleeping_until {
            schedule.sleeping_until = due;
            drop(schedule);
            self.wake.notify_one();
        }
    }

    /// Takes what is due, and says when the next comes due.
    fn take_due(&self) -> (Vec<Arc<dyn Chore>>, Option<Moment>) {
        let mut schedule = self.schedule.lock();
        let now = self.clock.now().as_micros();
        let later = schedule.chores.split_off(&(now.saturating_add(1), 0));
        let due = std::mem::replace(&mut schedule.chores, later);
        let first = schedule.chores.first_key_value().map_or(CANCELLED, |((due, _), _)| *due);
        // Waking for nothing once a while is cheaper than being woken by every chore that is first for a moment.
        let kept = if schedule.sleeping_until > now { schedule.sleeping_until } else { CANCELLED };
        schedule.sleeping_until = first.min(kept);
        let next = Some(schedule.sleeping_until).filter(|next| *next != CANCELLED);
        (due.into_values().collect(), next.map(Moment::from_micros))
    }
}

/// Says that the task has ended, also when its runtime is shut down around it.
struct StopSign(Arc<Shared>);

impl Drop for StopSign {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
    }
}

async fn work(sign: StopSign) {
    let shared = &sign.0;
    loop {
        // Looked at before the jobs are taken: the last one may be put there right before the last handle goes.
        let closed = shared.closed.load(Ordering::Acquire);
        let jobs = std::mem::take(&mut *shared.jobs.lock());
        for job in jobs {
            tokio::spawn(job);
        }
        if closed {
            return;
        }
        let (due, next) = shared.take_due();
        for chore in due {
            tokio::spawn(run(Arc::clone(shared), chore));
        }
        match next {
            Some(next) => tokio::select! {
                () = shared.wake.notified() => {}
                () = shared.clock.sleep(next.since(shared.clock.now())) => {}
            },
            None => shared.wake.notified().await,
        }
    }
}

async fn run(shared: Arc<Shared>, chore: Arc<dyn Chore>) {
    if let Some(next) = Arc::clone(&chore).run().await {
        shared.schedule(chore, next);
    }
}
