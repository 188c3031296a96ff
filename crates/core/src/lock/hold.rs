//! A lock that is held: its lease, its watchdog, and its end.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::backend::{Proof, Release, Renewed};
use super::error::RenewalFailure;
use super::line::Turn;
use super::locks::Shared;
use super::meter::{self, Counted};
use super::name::LockName;
use crate::clock::Moment;
use crate::error::StoreError;
use crate::keeper::{BoxFuture, Chore, Ticket};
use crate::lease::Lease;
use crate::record::{Owner, Settled};
use crate::renewal::{self, Renewal};

/// A lock between its grant and its release. The keeper renews it; guards share it.
#[derive(Debug)]
pub(super) struct Hold<P: Proof> {
    pub(super) name: LockName,
    pub(super) owner: Owner,
    pub(super) proof: P,
    pub(super) lease: Arc<Lease>,
    terms: Terms,
    shared: Arc<Shared<P>>,
    ticket: Ticket,
    /// How many guards there are.
    guards: AtomicUsize,
    /// Whether the last request was for all the time that `max_hold` leaves.
    is_last: AtomicBool,
    ending: AtomicBool,
    ended: Notify,
    /// Held while the backend is asked to renew or to release, so that no renewal follows a release.
    asking: tokio::sync::Mutex<()>,
    /// What is given up when the lock is released or lost: the turn, and being counted as held.
    place: Mutex<Option<(Turn, Counted)>>,
}

/// For how long a lock was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) sent: Moment,
    pub(super) ttl: Duration,
    pub(super) max_hold: Duration,
}

impl Terms {
    /// Whether `asked` at `now` is all that `max_hold` leaves.
    fn is_last(&self, now: Moment, asked: Duration) -> bool {
        now.plus(asked) >= self.sent.plus(self.max_hold)
    }

    /// What to ask for at `now`: never more than `max_hold` leaves.
    pub(super) fn ask(&self, now: Moment) -> Duration {
        self.ttl.min(self.sent.plus(self.max_hold).since(now))
    }
}

impl<P: Proof> Hold<P> {
    pub(super) fn new(
        shared: Arc<Shared<P>>,
        (name, owner, proof): (LockName, Owner, P),
        terms: Terms,
        (turn, counted): (Turn, Counted),
    ) -> Self {
        let asked = terms.ask(terms.sent);
        let deadline = terms.sent.plus(shared.backend.validity(asked));
        let lease = Arc::new(Lease::new(Arc::clone(&shared.clock), deadline));
        turn.held_under(&lease);
        Self {
            name,
            owner,
            proof,
            lease,
            terms,
            shared,
            ticket: Ticket::of_lease(terms.ttl),
            guards: AtomicUsize::new(1),
            is_last: AtomicBool::new(terms.is_last(terms.sent, asked)),
            ending: AtomicBool::new(false),
            ended: Notify::new(),
            asking: tokio::sync::Mutex::new(()),
            place: Mutex::new(Some((turn, counted))),
        }
    }

    pub(super) fn first_renewal(&self) -> Moment {
        if self.is_last.load(Ordering::Acquire) {
            return self.lease.deadline();
        }
        renewal::first(self.terms.sent, self.shared.backend.validity(self.terms.ttl))
    }

    pub(super) fn remaining(&self) -> Duration {
        if self.lease.is_lost() {
            return Duration::ZERO;
        }
        self.lease.deadline().since(self.shared.clock.now())
    }

    /// Another guard, unless the last one is gone already.
    pub(super) fn join(&self) -> bool {
        let join = |guards| if guards == 0 { None } else { Some(guards + 1) };
        !self.lease.is_lost() && self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, join).is_ok()
    }

    /// One guard less. True if it was the last.
    pub(super) fn leave(&self) -> bool {
        self.guards.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// No renewal begins from now on, and one that is on its way is not waited for.
    pub(super) fn stop(&self) {
        self.ending.store(true, Ordering::Release);
        self.ended.notify_waiters();
        // For views that outlive the guard.
        self.lease.lose();
    }

    /// Asks the backend to free the lock, after whatever else was asked.
    pub(super) async fn free(&self) -> Result<Release, StoreError> {
        let _asking = self.asking.lock().await;
        self.shared.backend.release(&self.name, &self.owner).await
    }

    /// Lets the next one in the line try.
    pub(super) fn pass_on(&self) {
        let place = self.place.lock().take();
        drop(place);
    }

    async fn stopped(&self) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if self.ending.load(Ordering::Acquire) {
                return;
            }
            ended.await;
        }
    }

    /// Renews, and says when next; at the deadline it says that the lock is lost.
    async fn watch(&self) -> Option<Moment> {
        let _asking = self.asking.lock().await;
        let clock = &*self.shared.clock;
        if self.ending.load(Ordering::Acquire) {
            return None;
        }
        let deadline = self.lease.deadline();
        if self.is_last.load(Ordering::Acquire) && clock.now() < deadline {
            return Some(deadline);
        }
        let now = clock.now();
        let asked = self.terms.ask(now);
        let backend = &self.shared.backend;
        let call = async {
            let renewed = backend.renew(&self.name, &self.owner, asked).await?;
            Ok(if renewed == Renewed::Renewed { Settled::Applied } else { Settled::Lost })
        };
        let renewal = tokio::select! {
            biased;
            () = self.stopped() => return None,
            renewal = renewal::renew(clock, &self.lease, backend.validity(asked), call) => renewal,
        };
        let next = match renewal {
            Renewal::Renewed { next } => {
                meter::renewed();
                self.is_last.store(self.terms.is_last(now, asked), Ordering::Release);
                next
            }
            Renewal::Unknown { error, next } => {
                meter::renewal_unknown();
                let remaining = self.lease.deadline().since(clock.now());
                tracing::warn!(lock = %self.name, ?remaining, error = &error as &dyn std::error::Error, "a renewal failed, will retry");
                self.report(&RenewalFailure::Unknown { key: &self.name, remaining, error: &error });
                next
            }
            Renewal::Lost => {
                meter::renewal_lost();
                return self.lose();
            }
            Renewal::Over => return self.lose(),
        };
        let deadline = self.lease.deadline();
        Some(if self.is_last.load(Ordering::Acquire) { deadline } else { next.min(deadline) })
    }

    fn lose(&self) -> Option<Moment> {
        self.lease.lose();
        meter::lost();
        tracing::warn!(lock = %self.name, "the lock is lost before it was released: another may have it");
        self.pass_on();
        self.report(&RenewalFailure::Lost { key: &self.name });
        None
    }

    fn report(&self, failure: &RenewalFailure<'_>) {
        if let Some(hook) = &self.shared.hook {
            // A hook that panics must not end the renewals.
            if std::panic::catch_unwind(AssertUnwindSafe(|| hook(failure))).is_err() {
                tracing::error!("the hook on_renewal_failure panicked");
            }
        }
    }
}

impl<P: Proof> Chore for Hold<P> {
    fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    fn run(self: Arc<Self>) -> BoxFuture<Option<Moment>> {
        Box::pin(async move { self.watch().await })
    }
}
