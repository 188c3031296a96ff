//! One attempt under a lease, from its begin to its settlement, whoever makes that happen.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Inner;
use crate::background;
use crate::drain::Visit;
use crate::error::StoreError;
use crate::flight::Flight;
use crate::keeper::Chore;
use crate::lease::Permit;
use crate::record::{Answer, Over, Settled, Settlement, Verdict};
use crate::runner::{Attempt, Finish};

/// An attempt whose lease is renewed until it is settled or dropped.
#[derive(Debug)]
pub(super) struct LeaseAttempt {
    inner: Arc<Inner>,
    flight: Arc<Flight>,
    permit: Permit,
    over: Over,
    /// What was seen of the attempt that this one took over, if it was looked at.
    evidence: Answer,
    polled: bool,
    /// What a settle that is under way wants: dropped half-way, it is finished in the background.
    wanted: Option<Settlement>,
    visit: Option<Visit>,
    retain_unsettled: Duration,
}

impl LeaseAttempt {
    pub(super) fn new(
        inner: Arc<Inner>,
        flight: Arc<Flight>,
        (over, evidence): (Over, Answer),
        visit: Visit,
    ) -> Self {
        let permit = Permit::new(flight.id, flight.fence, flight.number, Some(Arc::clone(&flight.lease)));
        inner.flights.insert(&flight);
        inner.keeper.schedule(Arc::clone(&flight) as _, flight.first_renewal());
        let retain_unsettled = flight.retain_unsettled();
        Self {
            inner,
            flight,
            permit,
            over,
            evidence,
            polled: false,
            wanted: None,
            visit: Some(visit),
            retain_unsettled,
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

    fn evidence(&self) -> Answer {
        self.evidence.clone()
    }

    fn polled(&mut self) {
        self.polled = true;
    }

    async fn settle(mut self: Box<Self>, how: Settlement) -> Result<Finish, StoreError> {
        self.wanted = Some(how.clone());
        let (store, clock) = (&*self.inner.store, &*self.inner.clock);
        let settled =
            background::insist_on_settle(store, clock, &self.flight.id, &self.flight.attempt, &how).await;
        match settled {
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
            verdict: if doubtful {
                Verdict::Unknown(std::mem::take(&mut self.evidence))
            } else {
                Verdict::Released
            },
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
