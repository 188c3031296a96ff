//! The generator.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Clock, InputError, Moment, SystemClock};
use parking_lot::Mutex;

use crate::batch::Batch;
use crate::error::IdError;
use crate::grants::{Grant, GrantError, Grants, Holder, Request};
use crate::layout::Layout;
use crate::snowflake_id::SnowflakeId;
use crate::ticks::{Run, Ticks};

/// How long a store of grants may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// For so long after a failure the store of grants is not asked again.
const REST: Duration = Duration::from_millis(100);
/// A whole millisecond; the next one has begun after it, whenever it was begun.
const MILLI: Duration = Duration::from_millis(1);
/// How many ids one call reserves at most.
const MOST: u32 = 1_000_000;

/// Makes Snowflake ids under a leased worker number. Cheap to clone; clones share the worker number and never repeat an id.
///
/// Ids of one generator rise strictly. They are unique among all generators with the same layout and store of
/// [grants](crate::Grants), whatever the clocks do. When the window of the grant is over and there is no new one, there are
/// no ids: it fails closed.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use onlyonce_id::{FixedWorker, Layout, Snowflake};
/// let ids = Snowflake::open(Layout::STANDARD, FixedWorker::new(7)).await?;
/// let (first, second) = (ids.next().await?, ids.next().await?);
/// assert!(first < second);
/// assert_eq!(Layout::STANDARD.decode(first).worker, 7);
/// let batch: Vec<_> = ids.reserve(10_000).await?.collect();
/// assert_eq!(batch.len(), 10_000);
/// # Ok(()) }
/// ```
pub struct Snowflake<
    const TIME: u32 = 41,
    const WORKER: u32 = 10,
    const SEQUENCE: u32 = 12,
    const BUSINESS: u32 = 0,
> {
    shared: Arc<Shared<TIME, WORKER, SEQUENCE, BUSINESS>>,
}

impl<const T: u32, const W: u32, const S: u32, const B: u32> Clone for Snowflake<T, W, S, B> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<const T: u32, const W: u32, const S: u32, const B: u32> fmt::Debug for Snowflake<T, W, S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snowflake").field("worker", &self.worker()).finish_non_exhaustive()
    }
}

struct Shared<const T: u32, const W: u32, const S: u32, const B: u32> {
    layout: Layout<T, W, S, B>,
    ticks: Ticks<W, S>,
    clock: Arc<dyn Clock>,
    grants: Arc<dyn Grants>,
    holder: Holder,
    span: Duration,
    /// Held while asking for a window.
    asking: tokio::sync::Mutex<()>,
    /// When the store of grants failed last.
    failed: Mutex<Option<Moment>>,
}

/// Sets up a [`Snowflake`].
#[derive(Debug)]
#[must_use = "there are no ids before open()"]
pub struct Builder<const T: u32, const W: u32, const S: u32, const B: u32> {
    layout: Layout<T, W, S, B>,
    grants: Arc<dyn Grants>,
    clock: Arc<dyn Clock>,
    span: Duration,
}

impl<const T: u32, const W: u32, const S: u32, const B: u32> Builder<T, W, S, B> {
    /// Takes time from `clock`.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// How long a window is asked for (30 s). It is renewed when a third has passed; without the store of grants there are
    /// ids for what is left of it. A worker number that was not given back is free after so long.
    pub fn span(mut self, span: Duration) -> Self {
        self.span = span;
        self
    }

    /// Asks for the first window, and renews it from then on.
    ///
    /// # Errors
    /// If there is no grant, or the span is below 100 ms or above an hour.
    pub async fn open(self) -> Result<Snowflake<T, W, S, B>, IdError> {
        if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&self.span) {
            let wrong = InputError::new("the span of a grant must be between 100 ms and 1 h");
            return Err(GrantError::unavailable(wrong).into());
        }
        let shared = Arc::new(Shared {
            layout: self.layout,
            ticks: Ticks::new(),
            clock: self.clock,
            grants: self.grants,
            holder: Holder::random(),
            span: self.span,
            asking: tokio::sync::Mutex::new(()),
            failed: Mutex::new(None),
        });
        shared.renew(None).await?;
        tokio::spawn(keep(Arc::downgrade(&shared), Arc::clone(&shared.clock), self.span / 3));
        Ok(Snowflake { shared })
    }
}

impl<const T: u32, const W: u32, const S: u32, const B: u32> Snowflake<T, W, S, B> {
    /// A generator with the default settings.
    ///
    /// # Errors
    /// If there is no grant.
    pub async fn open(layout: Layout<T, W, S, B>, grants: impl Grants) -> Result<Self, IdError> {
        Self::builder(layout, grants).open().await
    }

    /// Starts a configured generator.
    pub fn builder(layout: Layout<T, W, S, B>, grants: impl Grants) -> Builder<T, W, S, B> {
        let (clock, span) = (Arc::new(SystemClock), Duration::from_secs(30));
        Builder { layout, grants: Arc::new(grants), clock, span }
    }

    /// The worker number under which ids are made now. It changes only when its window was lost.
    #[must_use]
    pub fn worker(&self) -> u64 {
        self.shared.ticks.window().0
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> Layout<T, W, S, B> {
        self.shared.layout
    }

    /// The next id; waits at the layout's ceiling, and for a new window when the old one is over.
    ///
    /// # Errors
    /// See [`IdError`].
    ///
    /// # Cancel safety
    /// Dropped half-way, at most an id is skipped.
    pub async fn next(&self) -> Result<SnowflakeId, IdError> {
        self.next_for(0).await
    }

    /// The next id with these business bits.
    ///
    /// # Errors
    /// See [`IdError`].
    pub async fn next_for(&self, business: u64) -> Result<SnowflakeId, IdError> {
        self.check(business)?;
        let run = self.shared.take(1).await?;
        Ok(Layout::<T, W, S, B>::assemble(run.start, run.worker, business))
    }

    /// The next id without waiting.
    ///
    /// # Errors
    /// See [`IdError`]; here also [`IdError::Ceiling`] and [`IdError::NoGrant`].
    pub fn try_next(&self) -> Result<SnowflakeId, IdError> {
        let run = self.shared.try_take(1)?;
        Ok(Layout::<T, W, S, B>::assemble(run.start, run.worker, 0))
    }

    /// The next `count` ids at once: far cheaper than one by one.
    ///
    /// # Errors
    /// See [`IdError`]. At most a million at a time.
    pub async fn reserve(&self, count: u32) -> Result<Batch<T, W, S, B>, IdError> {
        self.reserve_for(count, 0).await
    }

    /// The next `count` ids with these business bits.
    ///
    /// # Errors
    /// See [`IdError`]. At most a million at a time.
    pub async fn reserve_for(&self, count: u32, business: u64) -> Result<Batch<T, W, S, B>, IdError> {
        self.check(business)?;
        if count > MOST {
            return Err(IdError::TooMany { limit: MOST });
        }
        let mut runs = Vec::new();
        let mut left = u64::from(count);
        while left > 0 {
            let run = self.shared.take(left).await?;
            left -= run.end - run.start;
            runs.push(run);
        }
        Ok(Batch::new(runs, business))
    }

    /// Gives the worker number back. This generator and its clones make no more ids.
    ///
    /// # Errors
    /// If the store of grants fails; then the number is free when its window is over.
    pub async fn close(&self) -> Result<(), IdError> {
        let shared = &self.shared;
        let _asking = shared.asking.lock().await;
        let (worker, _) = shared.ticks.window();
        let Some(used_until) = shared.ticks.close() else { return Ok(()) };
        let used_until = shared.layout.epoch_millis() + used_until;
        Ok(shared.in_time(shared.grants.release(shared.holder, worker, used_until)).await?)
    }

    fn check(&self, business: u64) -> Result<(), IdError> {
        let end = self.shared.layout.businesses();
        if business < end { Ok(()) } else { Err(IdError::Business { value: business, end }) }
    }
}

impl<const T: u32, const W: u32, const S: u32, const B: u32> Shared<T, W, S, B> {
    /// Milliseconds since the layout's epoch.
    fn now(&self) -> Result<u64, IdError> {
        let now = (self.clock.wall_micros() / 1000).checked_sub(self.layout.epoch_millis());
        now.filter(|now| *now < 1 << T).ok_or(IdError::OutOfTime)
    }

    fn try_take(&self, most: u64) -> Result<Run, IdError> {
        self.ticks.take(self.now()?, most)
    }

    async fn take(&self, most: u64) -> Result<Run, IdError> {
        let mut renewed = false;
        loop {
            let seen = self.ticks.window();
            match self.try_take(most) {
                Err(IdError::Ceiling) => self.clock.sleep(MILLI).await,
                Err(IdError::NoGrant) if renewed => {
                    let by = self.now()?.saturating_sub(self.ticks.window().1);
                    return Err(IdError::ClockAhead { by: Duration::from_millis(by) });
                }
                Err(IdError::NoGrant) => {
                    self.renew(Some(seen)).await?;
                    renewed = true;
                }
                other => return other,
            }
        }
    }

    /// Asks for a new window, unless somebody has got one since `seen`.
    async fn renew(&self, seen: Option<(u64, u64)>) -> Result<(), IdError> {
        let _asking = self.asking.lock().await;
        // Else it would lease the number that it gave back, or another one, for nobody.
        if self.ticks.is_closed() {
            return Err(IdError::Closed);
        }
        if seen.is_some_and(|seen| seen != self.ticks.window()) {
            return Ok(());
        }
        if self.failed.lock().is_some_and(|at| self.clock.now().since(at) < REST) {
            return Err(IdError::NoGrant);
        }
        let worker = seen.map(|(worker, _)| worker);
        let request =
            Request { holder: self.holder, worker, workers: self.layout.workers(), span: self.span };
        let granted = self.in_time(self.grants.grant(&request)).await.and_then(|grant| self.check(grant));
        *self.failed.lock() = granted.is_err().then(|| self.clock.now());
        let Grant { worker, from, until } = granted?;
        let epoch = self.layout.epoch_millis();
        let until = until.min(self.layout.end_millis()).saturating_sub(epoch);
        self.ticks.open(worker, from.saturating_sub(epoch), until);
        Ok(())
    }

    fn check(&self, grant: Grant) -> Result<Grant, GrantError> {
        let workers = self.layout.workers();
        if grant.worker < workers && grant.from < self.layout.end_millis() {
            return Ok(grant);
        }
        Err(GrantError::unavailable(InputError::new(format!(
            "worker {} was granted, from {}; this layout has {workers} workers and ends at {}",
            grant.worker,
            grant.from,
            self.layout.end_millis()
        ))))
    }

    async fn in_time<R>(&self, asked: impl Future<Output = Result<R, GrantError>>) -> Result<R, GrantError> {
        tokio::select! {
            answer = asked => answer,
            () = self.clock.sleep(PATIENCE) => {
                Err(GrantError::unavailable(InputError::new(format!("no answer within {PATIENCE:?}"))))
            }
        }
    }
}

/// Renews the window whenever a third of it has passed, as long as somebody has the generator and it is not closed.
async fn keep<const T: u32, const W: u32, const S: u32, const B: u32>(
    shared: std::sync::Weak<Shared<T, W, S, B>>,
    clock: Arc<dyn Clock>,
    period: Duration,
) {
    loop {
        clock.sleep(period).await;
        let Some(shared) = shared.upgrade() else { return };
        let seen = shared.ticks.window();
        match shared.renew(Some(seen)).await {
            Ok(()) => {}
            Err(IdError::Closed) => return,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the worker number could not be renewed"
                );
            }
        }
    }
}
