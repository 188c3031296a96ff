//! Taking a lock: the line in this process, then the backend, then waiting for its release, and again.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::backend::{Acquired, Proof, Release};
use super::error::LockError;
use super::guard::Guard;
use super::hold::{Hold, Terms};
use super::line::{Place, Turn};
use super::locks::Inner;
use super::meter::Counted;
use super::name::LockName;
use crate::background::{self, REPEATS};
use crate::clock::Moment;
use crate::drain::Visit;
use crate::error::{ErrorKind, StoreError};
use crate::record::Owner;

/// After so many tries that came too late, the next ones are spread a little.
const RUSH: u32 = 8;
const SPREAD: Duration = Duration::from_millis(20);

/// What a request wants, checked.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) name: LockName,
    pub(super) ttl: Duration,
    pub(super) wait: Duration,
    pub(super) max_hold: Duration,
}

pub(super) async fn acquire<P: Proof>(inner: &Arc<Inner<P>>, wanted: Wanted) -> Result<Guard<P>, LockError> {
    inner.keeper.ensure_running();
    let visit = inner.enter()?;
    let patience = Patience::new(inner, wanted.wait);
    let turn = match inner.lines.join(&wanted.name).try_turn() {
        Ok(turn) => turn,
        Err(place) => patience.in_line(place).await?,
    };
    let mut tries = Tries { inner, wanted, owner: Owner::random(), own: Some((turn, visit)), doubt: false };
    let (mut taken, mut failed) = (0, 0);
    loop {
        let sent = inner.shared.clock.now();
        match tries.one().await {
            Ok(Acquired::Granted(proof)) => return tries.granted(proof, sent, patience.waited()),
            Ok(Acquired::Taken { free_in }) => {
                taken += 1;
                patience.for_release(&tries.wanted.name, free_in, taken).await?;
            }
            // Repeating it with the same owner is safe, and tells.
            Err(error) if error.kind() == ErrorKind::Ambiguous && failed < REPEATS => {
                failed += 1;
                patience.pause(failed, None).await?;
            }
            Err(error) if matches!(error.kind(), ErrorKind::Ambiguous | ErrorKind::Unavailable) => {
                failed += 1;
                patience.pause(failed, Some(error)).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The tries of one request, all with one owner. Whatever they may have taken is given back if this is dropped.
struct Tries<'a, P: Proof> {
    inner: &'a Arc<Inner<P>>,
    wanted: Wanted,
    owner: Owner,
    own: Option<(Turn, Visit)>,
    /// Whether something was sent that may have been granted, or may yet be.
    doubt: bool,
}

impl<P: Proof> Tries<'_, P> {
    async fn one(&mut self) -> Result<Acquired<P>, StoreError> {
        let before = std::mem::replace(&mut self.doubt, true);
        let ttl = self.wanted.ttl.min(self.wanted.max_hold);
        let reply = self.inner.shared.backend.acquire(&self.wanted.name, &self.owner, ttl).await;
        self.doubt = match &reply {
            Ok(Acquired::Granted(_)) => true,
            Ok(Acquired::Taken { .. }) => before,
            Err(error) => before || error.kind() == ErrorKind::Ambiguous,
        };
        reply
    }

    fn granted(mut self, proof: P, sent: Moment, waited: Duration) -> Result<Guard<P>, LockError> {
        let Some((turn, visit)) = self.own.take() else { return Err(LockError::Closed) };
        let terms = Terms { sent, ttl: self.wanted.ttl, max_hold: self.wanted.max_hold };
        let what = (self.wanted.name.clone(), self.owner, proof);
        let hold = Hold::new(Arc::clone(&self.inner.shared), what, terms, (turn, Counted::new(waited)));
        let hold = Arc::new(hold);
        self.inner.keeper.schedule(Arc::clone(&hold) as _, hold.first_renewal());
        let guard = Guard::new(Arc::clone(self.inner), hold, visit);
        if guard.is_lost() {
            // Dropping the guard gives it back in the background.
            let why = "the backend took longer to answer than the lock lasts; lengthen its ttl";
            return Err(StoreError::new(ErrorKind::Busy, "onlyonce", "acquire", why).into());
        }
        tracing::trace!(lock = %self.wanted.name, ?waited, "a lock is held");
        Ok(guard)
    }
}

impl<P: Proof> Drop for Tries<'_, P> {
    fn drop(&mut self) {
        let Some(own) = self.own.take() else { return };
        if !self.doubt {
            return;
        }
        let shared = Arc::clone(&self.inner.shared);
        let (name, owner, ttl) = (self.wanted.name.clone(), self.owner, self.wanted.ttl);
        let own = Arc::new(Mutex::new(Some(own)));
        self.inner.keeper.finish_later(move || {
            let (shared, name, own) = (Arc::clone(&shared), name.clone(), Arc::clone(&own));
            async move {
                // What was not released runs out by itself.
                let _ = background::undo(&*shared.clock, ttl, &own, || async {
                    let released = shared.backend.release(&name, &owner).await;
                    released.map(|released| released == Release::Released)
                })
                .await;
            }
        });
    }
}

/// How long one caller still waits.
struct Patience<'a, P: Proof> {
    inner: &'a Inner<P>,
    began: Moment,
    until: Moment,
}

impl<'a, P: Proof> Patience<'a, P> {
    fn new(inner: &'a Inner<P>, wait: Duration) -> Self {
        let began = inner.shared.clock.now();
        Self { inner, began, until: began.plus(wait) }
    }

    fn waited(&self) -> Duration {
        self.inner.shared.clock.now().since(self.began)
    }

    fn left(&self) -> Option<Duration> {
        Some(self.until.since(self.inner.shared.clock.now())).filter(|left| !left.is_zero())
    }

    fn busy(&self, free_in: Option<Duration>) -> LockError {
        LockError::Busy { waited: self.waited(), free_in }
    }

    /// Waits behind others of this process.
    async fn in_line(&self, place: Place) -> Result<Turn, LockError> {
        let clock = &*self.inner.shared.clock;
        let Some(left) = self.left() else { return Err(self.busy(place.free_in(clock))) };
        let _waiting = self.inner.waiters.try_acquire().map_err(|_| LockError::TooManyWaiters)?;
        tokio::select! {
            biased;
            turn = place.turn() => Ok(turn),
            () = self.inner.closed() => Err(LockError::Closed),
            () = clock.sleep(left) => Err(self.busy(None)),
        }
    }

    /// Waits for the release of a lock that somebody else has.
    async fn for_release(
        &self,
        name: &LockName,
        free_in: Option<Duration>,
        taken: u32,
    ) -> Result<(), LockError> {
        let Some(left) = self.left() else { return Err(self.busy(free_in)) };
        let shared = &self.inner.shared;
        let _waiting = self.inner.waiters.try_acquire().map_err(|_| LockError::TooManyWaiters)?;
        tokio::select! {
            biased;
            () = self.inner.closed() => return Err(LockError::Closed),
            () = shared.backend.freed(name, left) => {}
            () = shared.clock.sleep(left) => {}
        }
        if taken > RUSH {
            let pause = SPREAD.mul_f64(rand::random::<f64>());
            shared.clock.sleep(pause.min(self.left().unwrap_or_default())).await;
        }
        Ok(())
    }

    /// Waits before the next try of a backend that failed; with an `error`, only while the wait lasts.
    async fn pause(&self, failed: u32, error: Option<StoreError>) -> Result<(), LockError> {
        let mut pause = background::backoff(failed);
        if let Some(error) = error {
            let Some(left) = self.left() else { return Err(error.into()) };
            pause = pause.min(left);
        }
        tokio::select! {
            () = self.inner.closed() => Err(LockError::Closed),
            () = self.inner.shared.clock.sleep(pause) => Ok(()),
        }
    }
}
