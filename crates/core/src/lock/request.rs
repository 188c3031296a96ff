//! Asking for a lock.

use std::sync::Arc;
use std::time::Duration;

use super::backend::Proof;
use super::error::LockError;
use super::guard::{Guard, Held};
use super::locks::Locks;
use super::name::LockName;
use super::owner::LockOwner;
use super::{acquire, meter};
use crate::record::Fence;
use crate::settings::span;

/// A request for a lock, made by [`Locks::key`].
#[derive(Debug, Clone)]
#[must_use = "nothing is locked before `acquire` or `run`"]
pub struct Request<P: Proof = Fence> {
    locks: Locks<P>,
    name: Arc<str>,
    ttl: Duration,
    wait: Duration,
    max_hold: Duration,
    owner: Option<LockOwner<P>>,
}

const SECOND: Duration = Duration::from_secs(1);
/// Below this, scheduling noise alone would lose it.
const SHORTEST: Duration = Duration::from_millis(10);
const DAY: Duration = Duration::from_secs(24 * 3600);

impl<P: Proof> Request<P> {
    pub(super) fn new(locks: Locks<P>, name: Arc<str>) -> Self {
        let (ttl, max_hold) = (30 * SECOND, 600 * SECOND);
        Self { locks, name, ttl, wait: Duration::ZERO, max_hold, owner: None }
    }

    /// How long the lock outlives a holder that died (30 s; from 10 ms to a day). It is renewed at a third of this.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait for it (0 s: try once; at most a day).
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// For how long it may be held in all (10 min; from 10 ms to a year). Then it is not renewed any more, and is lost.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = max_hold;
        self
    }

    /// Takes it for this owner, who may have it already: then this is one more guard of the same lock, whose ttl and
    /// `max_hold` stay as they are.
    pub fn owner(mut self, owner: &LockOwner<P>) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Takes the lock.
    ///
    /// # Errors
    /// [`LockError::Busy`] if somebody else has it and the wait is over; see [`LockError`]. A backend that fails is asked again
    /// while the wait lasts.
    ///
    /// # Cancel safety
    /// Dropped half-way, whatever it may have taken is released in the background.
    pub async fn acquire(self) -> Result<Guard<P>, LockError> {
        let guard = self.ask().await;
        match &guard {
            Ok(_) => {}
            Err(LockError::Busy { .. } | LockError::TooManyWaiters) => meter::busy(),
            Err(_) => meter::failed(),
        }
        guard
    }

    /// Runs `work` under the lock, and releases it.
    ///
    /// If the lock is lost meanwhile, the work is *told* by [`Held::lost`] and not stopped: only the work knows where it may
    /// stop. [`run_until_lost`](Self::run_until_lost) stops it. Whether it was lost or not, the answer of the work is given
    /// back; a resource that checks the [`fence`](Held::fence) has refused what came too late.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); then the work did not run.
    ///
    /// # Cancel safety
    /// Dropped half-way, the work is dropped and the lock is released in the background.
    pub async fn run<T, W>(self, work: impl FnOnce(Held<P>) -> W) -> Result<T, LockError>
    where
        W: Future<Output = T>,
    {
        let guard = self.acquire().await?;
        let answer = work(guard.held()).await;
        release(guard).await;
        Ok(answer)
    }

    /// As [`run`](Self::run), but drops the work when the lock is lost.
    ///
    /// # Errors
    /// Also [`LockError::Lost`]: the work was dropped at some await, and what it did before that is done.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_until_lost<T, W>(self, work: impl FnOnce(Held<P>) -> W) -> Result<T, LockError>
    where
        W: Future<Output = T>,
    {
        let guard = self.acquire().await?;
        let answer = tokio::select! {
            biased;
            // The guard is dropped: there is nothing left to release that could be waited for.
            () = guard.lost() => return Err(LockError::Lost),
            answer = work(guard.held()) => answer,
        };
        release(guard).await;
        Ok(answer)
    }

    async fn ask(self) -> Result<Guard<P>, LockError> {
        let name = LockName::new(self.name)?;
        span("ttl", self.ttl, SHORTEST, DAY)?;
        span("wait", self.wait, Duration::ZERO, DAY)?;
        span("max_hold", self.max_hold, SHORTEST, 366 * DAY)?;
        let wanted = acquire::Wanted { name, ttl: self.ttl, wait: self.wait, max_hold: self.max_hold };
        match self.owner {
            Some(owner) => owner.acquire(&self.locks, wanted).await,
            None => acquire::acquire(&self.locks.inner, wanted).await,
        }
    }
}

/// A release that fails goes on in the background; the work is done either way.
async fn release<P: Proof>(guard: Guard<P>) {
    let name = guard.key().clone();
    match guard.release().await {
        Ok(released) => tracing::trace!(lock = %name, ?released, "the work under a lock is done"),
        Err(error) => {
            tracing::warn!(lock = %name, error = &error as &dyn std::error::Error, "a lock is released in the background");
        }
    }
}
