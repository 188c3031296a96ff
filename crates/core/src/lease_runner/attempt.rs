//! One attempt under a lease, from its begin to its settlement, whoever makes that happen.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Inner, REPEATS};
use crate::background;
use crate::drain::Visit;
use crate::error::{ErrorKind, StoreError};
use crate::flight::Flight;
use crate::keeper::Chore;
use crate::lease::Permit;
use crate::record::{Over, Settled, Settlement, Verdict};
use crate::runner::{Attempt, Finish};

/// An attempt whose lease is renewed until it is settled or dropped.
#[derive(Debug)]
pub(super) struct LeaseAttempt {
    inner: Arc<Inner>,
    flight: Arc<Flight>,
    permit: Permit,
    over: Over,
    polled: bool,
    /// What a settle that is under way wants: dropped half-way, it is finished in the background.
    wanted: Option<Settlement>,
    visit: Option<Visit>,
    retain_unsettled: Duration,
}

impl LeaseAttempt {
    pub(super) fn new(inner: Arc<Inner>, flight: Arc<Flight>, over: Over, visit: Visit) -> Self {
        let permit = Permit::new(flight.id, flight.fence, flight.number, Some(Arc::clone(&flight.lease)));
        inner.flights.insert(&flight);
        inner.keeper.schedule(Arc::clone(&flight) as _, flight.first_renewal());
        let retain_unsettled = flight.retain_unsettled();
        Self {
            inner,
            flight,
            permit,
            over,
            polled: false,
            wanted: None,
            visit: Some(visit),
            retain_unsettled,
        }
    }

    async fn settle_now(&self, how: &Settlement) -> Result<Settled, StoreError> {
        let mut tries = 0;
        loop {
            match self.inner.store.settle(&self.flight.id, &self.flight.attempt, how).await {
                Err(error) if tries < REPEATS && error.kind() != ErrorKind::Rejected => {
                    tracing::warn!(record = %self.flight.id, error = &error as &dyn std::error::Error, "settle is repeated");
                    tries += 1;
                    self.inner.clock.sleep(background::backoff(tries)).await;
                }
                other => return other,
            }
        }
    }

    fn land(&mut self) {
        self.visit = None;
        self.inner.keeper.cancel(self.flight.ticket());
        self.inner.flights.remove(&self.flight);
    }
}

#[async_trait]
impl Attempt for LeaseAttempt {
    fn permit(&self) -> &Permit {
        &self.permit
    }

    fn over(&self) -> Over {
        self.over
    }

    fn polled(&mut self) {
        self.polled = true;
    }

    async fn settle(mut self: Box<Self>, how: Settlement) -> Result<Finish, StoreError> {
        self.wanted = Some(how.clone());
        match self.settle_now(&how).await {
            Ok(Settled::Applied) => {
                self.flight.settled(how);
                self.land();
                Ok(Finish::Applied)
            }
            Ok(Settled::Lost) => {
                self.flight.gone();
                self.land();
                // What can't be read is as good as gone: the caller is told that nobody knows.
                Ok(Finish::Lost(self.inner.store.get(&self.flight.id).await.ok().flatten()))
            }
            Err(error) => {
                tracing::error!(record = %self.flight.id, error = &error as &dyn std::error::Error, "the answer is not stored yet");
                // Dropping `self` hands it to the background.
                Ok(Finish::Pending)
            }
        }
    }
}

impl Drop for LeaseAttempt {
    fn drop(&mut self) {
        let Some(visit) = self.visit.take() else { return };
        let doubtful = self.polled || self.over == Over::Lapsed;
        let how = self.wanted.take().unwrap_or_else(|| Settlement {
            verdict: if doubtful { Verdict::Unknown(Default::default()) } else { Verdict::Released },
            retain: self.retain_unsettled,
        });
        let (inner, flight) = (Arc::clone(&self.inner), Arc::clone(&self.flight));
        self.inner.keeper.finish_later(Box::pin(async move {
            let settled =
                background::settle(&*inner.store, &*inner.clock, &flight.id, &flight.attempt, &how).await;
            match settled {
                Some(Settled::Applied) => flight.settled(how),
                Some(Settled::Lost) | None => flight.gone(),
            }
            inner.keeper.cancel(flight.ticket());
            inner.flights.remove(&flight);
            drop(visit);
        }));
    }
}
