//! One attempt under a lease, from its begin to its settlement, whoever makes that happen.

use std::sync::Arc;

use crate::background;
use crate::drain::Visit;
use crate::error::StoreError;
use crate::flight::Flight;
use crate::keeper::Chore;
use crate::lease::Permit;
use crate::record::{Answer, Over, Settled, Settlement, Snapshot, Verdict};
use crate::runner::Finish;

/// An attempt whose lease is renewed until it is settled or dropped. A few words long: everything else is in its flight.
#[derive(Debug)]
pub(crate) struct LeaseAttempt {
    flight: Arc<Flight>,
    permit: Permit,
    polled: bool,
    visit: Option<Visit>,
}

impl LeaseAttempt {
    pub(super) fn new(flight: Arc<Flight>, visit: Visit) -> Self {
        let field = &flight.field;
        field.flights.insert(&flight);
        field.keeper.schedule(Arc::clone(&flight) as _, flight.first_renewal());
        let permit = Permit::new(Arc::clone(&flight) as _);
        Self { flight, permit, polled: false, visit: Some(visit) }
    }

    pub(crate) fn permit(&self) -> &Permit {
        &self.permit
    }

    pub(crate) fn over(&self) -> Over {
        self.flight.begun.over
    }

    pub(crate) fn evidence(&self) -> Answer {
        self.flight.begun.evidence.clone()
    }

    pub(crate) fn polled(&mut self) {
        self.polled = true;
    }

    /// Not an async function: that would hold its arguments twice.
    pub(crate) fn settle(self, how: Settlement) -> impl Future<Output = Finish> + Send {
        let mut settling = Settling { attempt: self, how: Some(how) };
        async move {
            let settled = loop {
                let Settling { attempt: LeaseAttempt { flight, .. }, how: Some(how) } = &settling else {
                    break Ok(Settled::Lost);
                };
                let (store, clock) = (&*flight.field.store, &*flight.field.clock);
                let settled =
                    background::insist_on_settle(store, clock, &flight.id, &flight.attempt, how).await;
                match background::left_of(&flight.id, &settled, how) {
                    Some(less) => settling.how = Some(less),
                    None => break settled,
                }
            };
            match settling.conclude(settled) {
                Ok(finish) => finish,
                // What can't be read is as good as gone: the caller is told that nobody knows.
                Err(Moved) => Finish::Lost(Box::pin(settling.attempt.look_again()).await),
            }
        }
    }

    async fn look_again(&self) -> Option<Snapshot> {
        self.flight.field.store.get(&self.flight.id).await.ok().flatten()
    }

    fn land(&mut self) {
        self.visit = None;
        land(&self.flight);
    }

    /// Goes on in the background.
    fn finish_later(&mut self, wanted: Option<Settlement>) {
        let Some(visit) = self.visit.take() else { return };
        let doubtful = self.polled || self.over() == Over::Lapsed;
        let how = wanted.unwrap_or_else(|| Settlement {
            verdict: if doubtful { Verdict::Unknown(self.evidence()) } else { Verdict::Released },
            retain: self.flight.retain_unsettled(),
        });
        let (flight, visit) = (Arc::clone(&self.flight), Arc::new(visit));
        self.flight.field.keeper.finish_later(move || {
            let (flight, visit, mut how) = (Arc::clone(&flight), Arc::clone(&visit), how.clone());
            async move {
                let (store, clock) = (&*flight.field.store, &*flight.field.clock);
                match background::settle(store, clock, &flight.id, &flight.attempt, &mut how).await {
                    Some(Settled::Applied) => flight.settled(how),
                    Some(Settled::Lost) | None => flight.gone(),
                }
                land(&flight);
                drop(visit);
            }
        });
    }
}

fn land(flight: &Arc<Flight>) {
    flight.field.keeper.cancel(flight.ticket());
    flight.field.flights.remove(flight);
}

impl Drop for LeaseAttempt {
    fn drop(&mut self) {
        self.finish_later(None);
    }
}

/// An attempt whose settlement is under way: dropped half-way, it is finished in the background.
struct Settling {
    attempt: LeaseAttempt,
    how: Option<Settlement>,
}

/// Another attempt has the record.
struct Moved;

impl Settling {
    /// What the store's answer means.
    fn conclude(&mut self, settled: Result<Settled, StoreError>) -> Result<Finish, Moved> {
        let flight = &self.attempt.flight;
        match settled {
            Ok(Settled::Applied) => {
                if let Some(how) = self.how.take() {
                    flight.settled(how);
                }
                self.attempt.land();
                Ok(Finish::Applied)
            }
            Ok(Settled::Lost) => {
                self.how = None;
                flight.gone();
                self.attempt.land();
                Err(Moved)
            }
            Err(error) => {
                crate::seldom!(error, record = %flight.id, error = &error as &dyn std::error::Error, "the answer is not stored yet");
                // Dropping this hands it to the background.
                Ok(Finish::Pending)
            }
        }
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        // Before the attempt's own drop, which would not know what was wanted.
        if let Some(how) = self.how.take() {
            self.attempt.finish_later(Some(how));
        }
    }
}
