//! The one background task of an engine: it renews leases, sweeps, and finishes work that was dropped.
//!
//! It runs on the runtime of the first call. When that ends while the engine lives on, what was on its way is begun anew: by
//! the next call, or, if a lease or a job can't wait for that, in a thread of its own.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::background::backoff;
use crate::clock::{Clock, Moment};

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Something to do again and again.
pub(crate) trait Chore: Send + Sync {
    fn ticket(&self) -> &Ticket;

    /// Does it once, and says when next; `None` to stop.
    fn run(self: Arc<Self>) -> BoxFuture<Option<Moment>>;
}

/// Something to be finished. Begun anew if its runtime ends on the way, or if it panics.
pub(crate) trait Job: Send + Sync + 'static {
    fn run(&self) -> BoxFuture<()>;
}

impl<J, F> Job for J
where
    J: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    fn run(&self) -> BoxFuture<()> {
        Box::pin(self())
    }
}

/// The place of a chore in the schedule.
#[derive(Debug)]
pub(crate) struct Ticket {
    number: u64,
    due: AtomicU64,
    /// When it is done again after a panic.
    pause: Duration,
    /// Whether it can wait for the next call when its runtime has ended.
    can_wait: bool,
}

const CANCELLED: u64 = u64::MAX;

impl Ticket {
    /// For the renewals of a lease of this span.
    pub(crate) fn of_lease(span: Duration) -> Self {
        Self::new(span / 12, false)
    }

    /// For what is done once a period, and matters to no call.
    pub(crate) fn of_period(period: Duration) -> Self {
        Self::new(period, true)
    }

    fn new(pause: Duration, can_wait: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { number, due: AtomicU64::new(0), pause, can_wait }
    }
}

/// The handle that an engine holds; the task ends after the last of them is gone and its jobs are done.
pub(crate) struct Keeper(Arc<Shared>);

struct Shared {
    clock: Arc<dyn Clock>,
    schedule: Mutex<Schedule>,
    jobs: Mutex<VecDeque<Box<dyn Job>>>,
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

    /// Starts the task unless it runs. Called from async code; one that died with its runtime is started anew.
    pub(crate) fn ensure_running(&self) {
        if !self.0.running.load(Ordering::Acquire) && !self.0.running.swap(true, Ordering::AcqRel) {
            // Made before the task: where there is no runtime to spawn it on, the next call tries again.
            let sign = StopSign(Arc::clone(&self.0));
            tokio::spawn(work(sign));
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

    /// Hands over a job to be finished in the background. Safe in `Drop`: it neither needs a runtime nor blocks.
    pub(crate) fn finish_later(&self, job: impl Job) {
        self.0.jobs.lock().push_back(Box::new(job));
        self.0.wake.notify_one();
        self.0.outlive();
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

impl Shared {
    /// Goes on in a thread if the task has ended with its runtime, and something is left that can't wait for the next call.
    fn outlive(self: &Arc<Self>) {
        let ended = !self.running.load(Ordering::Acquire) && !self.closed.load(Ordering::Acquire);
        if !ended || !self.is_needed() || self.running.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::warn!(
            "a runtime has ended under calls of an engine that is still used; a thread looks after them"
        );
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("onlyonce-keeper".into()).spawn(move || {
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime.block_on(work(StopSign(shared))),
                Err(error) => shared.abandoned(&error),
            }
        });
        if let Err(error) = thread {
            self.abandoned(&error);
        }
    }

    fn is_needed(&self) -> bool {
        !self.jobs.lock().is_empty()
            || self.schedule.lock().chores.values().any(|chore| !chore.ticket().can_wait)
    }

    fn abandoned(&self, error: &std::io::Error) {
        tracing::error!(%error, "no thread can be had; leases and settlements wait for the next call");
        self.running.store(false, Ordering::Release);
    }
}

/// Says that the task has ended, also when its runtime is shut down around it.
struct StopSign(Arc<Shared>);

impl Drop for StopSign {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
        self.0.outlive();
    }
}

async fn work(sign: StopSign) {
    let shared = &sign.0;
    let mut tasks = JoinSet::new();
    loop {
        // Looked at before the jobs are taken: the last one may be put there right before the last handle goes.
        let closed = shared.closed.load(Ordering::Acquire);
        while tasks.try_join_next().is_some() {}
        let jobs = std::mem::take(&mut *shared.jobs.lock());
        for job in jobs {
            tasks.spawn(finish(Hand::new(shared, Work::Job(job))));
        }
        if closed {
            while tasks.join_next().await.is_some() {}
            return;
        }
        let (due, next) = shared.take_due();
        for chore in due {
            tasks.spawn(run(Hand::new(shared, Work::Chore(chore))));
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

enum Work {
    Job(Box<dyn Job>),
    Chore(Arc<dyn Chore>),
}

/// Work in the hand of a task, which gives it back if it is dropped half-way.
struct Hand {
    shared: Arc<Shared>,
    work: Option<Work>,
}

impl Hand {
    fn new(shared: &Arc<Shared>, work: Work) -> Self {
        Self { shared: Arc::clone(shared), work: Some(work) }
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        let shared = &self.shared;
        match self.work.take() {
            None => return,
            // Without waking the task: if it ends as well, it could only drop this again.
            Some(Work::Job(job)) => shared.jobs.lock().push_back(job),
            Some(Work::Chore(chore)) => shared.schedule(chore, shared.clock.now()),
        }
        shared.outlive();
    }
}

async fn finish(mut hand: Hand) {
    if let Some(Work::Job(job)) = &hand.work {
        let mut panics = 0;
        while AssertUnwindSafe(async { job.run().await }).catch_unwind().await.is_err() {
            panics += 1;
            tracing::error!(panics, "work in the background panicked; it is begun anew");
            hand.shared.clock.sleep(backoff(panics)).await;
        }
    }
    hand.work = None;
}

async fn run(mut hand: Hand) {
    let Some(Work::Chore(chore)) = &hand.work else { return };
    let chore = Arc::clone(chore);
    let again = Arc::clone(&chore);
    let next = AssertUnwindSafe(async { again.run().await }).catch_unwind().await;
    let next = next.unwrap_or_else(|_| {
        tracing::error!("a chore in the background panicked; it is done again");
        Some(hand.shared.clock.now().plus(chore.ticket().pause))
    });
    hand.work = None;
    if let Some(next) = next {
        hand.shared.schedule(chore, next);
    }
}
