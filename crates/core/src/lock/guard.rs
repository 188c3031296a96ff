//! What the holder of a lock has in hand.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::backend::{Proof, Release};
use super::hold::Hold;
use super::locks::Inner;
use super::meter;
use super::name::LockName;
use crate::background::{self, REPEATS};
use crate::drain::Visit;
use crate::error::{ErrorKind, StoreError};
use crate::keeper::Chore;
use crate::record::Fence;

/// A lock that is held until this is [released](Guard::release) or dropped, or until it is lost.
///
/// It is renewed at a third of its ttl, for as long as the guard lives and `max_hold` allows. Dropping it releases it in the
/// background; [`release`](Self::release) also says whether it was held to the end.
#[must_use = "a lock is released when its guard is dropped"]
pub struct Guard<P: Proof = Fence> {
    held: Held<P>,
    share: Option<Share<P>>,
}

/// A view of a lock that is held, for the work that runs under it. Cheap to clone; it keeps nothing locked.
pub struct Held<P: Proof = Fence>(Arc<Hold<P>>);

/// One guard's part in a hold; given back in the background if it is dropped.
struct Share<P: Proof> {
    inner: Arc<Inner<P>>,
    hold: Arc<Hold<P>>,
    visit: Option<Visit>,
}

impl<P: Proof> Guard<P> {
    pub(super) fn new(inner: Arc<Inner<P>>, hold: Arc<Hold<P>>, visit: Visit) -> Self {
        Self { held: Held(Arc::clone(&hold)), share: Some(Share { inner, hold, visit: Some(visit) }) }
    }

    pub(super) fn hold(&self) -> &Arc<Hold<P>> {
        &self.held.0
    }

    /// A view of this lock that can be passed on.
    #[must_use]
    pub fn held(&self) -> Held<P> {
        self.held.clone()
    }

    /// The name of the lock.
    #[must_use]
    pub fn key(&self) -> &LockName {
        self.held.key()
    }

    /// Ends when the lock is lost: at the local deadline, even if no reply ever says so.
    pub async fn lost(&self) {
        self.held.lost().await;
    }

    /// Whether somebody else may have the lock by now.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.held.is_lost()
    }

    /// How long the lock is certain to hold if it is not renewed again.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Releases the lock, and says whether it was held to the end.
    ///
    /// # Errors
    /// If the backend does not answer. The release then goes on in the background until the lock has run out by itself.
    ///
    /// # Cancel safety
    /// Dropped half-way, the release is finished in the background.
    pub async fn release(mut self) -> Result<Release, StoreError> {
        match self.share.take() {
            Some(share) => share.release().await,
            None => Ok(Release::StillHeld),
        }
    }
}

impl Guard<Fence> {
    /// A number that is higher than that of every holder before. Send it along; a resource that refuses a lower one than it
    /// has seen can't be written by a holder that has lost its lock.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.held.fence()
    }
}

impl<P: Proof> Held<P> {
    /// The name of the lock.
    #[must_use]
    pub fn key(&self) -> &LockName {
        &self.0.name
    }

    /// Ends when the lock is lost: at the local deadline, even if no reply ever says so. Stop before the next effect.
    pub async fn lost(&self) {
        self.0.lease.lost().await;
    }

    /// Whether somebody else may have the lock by now; also after it was released.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.lease.is_lost()
    }

    /// How long the lock is certain to hold if it is not renewed again.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }
}

impl Held<Fence> {
    /// See [`Guard::fence`].
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.0.proof
    }
}

impl<P: Proof> Share<P> {
    async fn release(mut self) -> Result<Release, StoreError> {
        // The first to leave: then dropping `self` half-way must not leave again.
        if !self.leave() {
            self.visit = None;
            return Ok(Release::StillHeld);
        }
        let mut unheard = Unheard { share: self };
        let (inner, hold) = (Arc::clone(&unheard.share.inner), Arc::clone(&unheard.share.hold));
        let mut repeats = 0;
        let released = loop {
            match hold.free().await {
                Err(error)
                    if matches!(error.kind(), ErrorKind::Ambiguous | ErrorKind::Unavailable)
                        && repeats < REPEATS =>
                {
                    repeats += 1;
                    inner.shared.clock.sleep(background::backoff(repeats)).await;
                }
                released => break released?,
            }
        };
        unheard.share.visit = None;
        hold.pass_on();
        // Before its time it can only have been freed by a copy of this release whose answer was lost.
        let in_time = inner.shared.clock.now() < hold.lease.deadline();
        let freed_before = repeats > 0 && in_time && released == Release::AlreadyExpired;
        Ok(if freed_before { Release::Released } else { released })
    }

    /// Ends the watch if this was the last guard.
    fn leave(&self) -> bool {
        let last = self.hold.leave();
        if last {
            self.hold.stop();
            self.inner.keeper.cancel(self.hold.ticket());
        }
        last
    }
}

impl<P: Proof> Drop for Share<P> {
    fn drop(&mut self) {
        // Taken by a release that was answered, or by `Unheard`.
        if self.visit.is_some() && self.leave() {
            meter::dropped_unreleased();
            free_later(self);
        }
    }
}

/// A release that was not answered yet.
struct Unheard<P: Proof> {
    share: Share<P>,
}

impl<P: Proof> Drop for Unheard<P> {
    fn drop(&mut self) {
        free_later(&mut self.share);
    }
}

/// Hands the release to the reaper: until it is answered, or the lock has run out by itself.
fn free_later<P: Proof>(share: &mut Share<P>) {
    let Some(visit) = share.visit.take() else { return };
    let (inner, hold) = (Arc::clone(&share.inner), Arc::clone(&share.hold));
    let visit = Arc::new(visit);
    share.inner.keeper.finish_later(move || {
        let (inner, hold, visit) = (Arc::clone(&inner), Arc::clone(&hold), Arc::clone(&visit));
        async move {
            let give_up = hold.lease.deadline();
            let freed = background::until_answered(&*inner.shared.clock, Some(give_up), || hold.free()).await;
            if let Err(error) = freed {
                tracing::warn!(lock = %hold.name, error = &error as &dyn std::error::Error, "a lock was not released: it runs out by itself");
            }
            hold.pass_on();
            drop(visit);
        }
    });
}

impl<P: Proof> Clone for Held<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P: Proof> fmt::Debug for Guard<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.held).finish()
    }
}

impl<P: Proof> fmt::Debug for Held<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("key", self.key())
            .field("proof", &self.0.proof)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
