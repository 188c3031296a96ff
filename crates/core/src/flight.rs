//! Attempts that run in this process, so that a duplicate next to them need not ask the store.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Moment;
use crate::keeper::{BoxFuture, Chore, Ticket};
use crate::key::RecordId;
use crate::lease::{Basis, Lease};
use crate::lease_runner::Field;
use crate::loan::Loan;
use crate::record::{Answer, AttemptId, Fence, Over, Owner, Settlement, Snapshot, State, Verdict};
use crate::renewal::{self, Renewal};
use crate::settings::Intent;

/// One running attempt: its lease, and what those who wait for it will hear.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) id: RecordId,
    pub(crate) attempt: AttemptId,
    pub(crate) begun: Begun,
    pub(crate) lease: Lease,
    /// Where it flies: the store, and everything that is shared there.
    pub(crate) field: Arc<Field>,
    intent: Arc<Intent>,
    started: Moment,
    ticket: Ticket,
    end: OnceLock<End>,
    ended: Notify,
}

/// What its begin was told.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) fence: Fence,
    pub(crate) number: u32,
    pub(crate) over: Over,
    /// What was seen of the attempt that this one took over, if it was looked at.
    pub(crate) evidence: Answer,
}

#[derive(Debug)]
enum End {
    /// The store has taken this settlement.
    Settled(Settlement, Moment),
    /// The attempt lost its record, or was dropped.
    Gone,
}

impl Flight {
    pub(crate) fn new(
        (id, owner): (RecordId, Owner),
        begun: Begun,
        intent: Arc<Intent>,
        sent: Moment,
        field: Arc<Field>,
    ) -> Self {
        let lease = Lease::new(Arc::clone(&field.clock), sent.plus(intent.settings.lease));
        let ticket = Ticket::of_lease(intent.settings.lease);
        Self {
            id,
            attempt: AttemptId { owner, fence: Some(begun.fence) },
            begun,
            lease,
            field,
            intent,
            started: sent,
            ticket,
            end: OnceLock::new(),
            ended: Notify::new(),
        }
    }

    pub(crate) fn first_renewal(&self) -> Moment {
        renewal::first(self.started, self.intent.settings.lease)
    }

    pub(crate) fn retain_unsettled(&self) -> Duration {
        self.intent.settings.retain_unsettled
    }

    pub(crate) fn settled(&self, how: Settlement) {
        self.finish(End::Settled(how, self.lease.clock().now()));
    }

    pub(crate) fn gone(&self) {
        self.finish(End::Gone);
    }

    fn finish(&self, end: End) {
        // The first word stands: a settlement that was applied is not undone by the drop after it.
        let _ = self.end.set(end);
        self.ended.notify_waiters();
    }

    /// The record as this process knows it, while it runs or once it is completed; else only the store can tell.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let now = self.lease.clock().now();
        let settings = &self.intent.settings;
        let (state, expires_in) = match self.end.get() {
            Some(End::Settled(Settlement { verdict: Verdict::Completed(answer), retain }, at)) => {
                (State::Completed(answer.clone()), at.plus(*retain).since(now))
            }
            Some(_) => return None,
            None if self.lease.is_lost() => return None,
            None => {
                let lease_left = self.lease.deadline().since(now);
                (State::Running { lease_left }, self.started.plus(settings.retain_unsettled).since(now))
            }
        };
        if expires_in.is_zero() {
            return None;
        }
        Some(Snapshot {
            state,
            fence: self.begun.fence,
            fingerprint: self.intent.fingerprint,
            attempts: self.begun.number,
            age: now.since(self.started),
            expires_in,
            label: self.intent.label.clone(),
        })
    }

    /// Ends when the attempt has ended or its lease is lost.
    pub(crate) async fn over(&self) {
        let ended = self.ended.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        if self.end.get().is_some() {
            return;
        }
        tokio::select! {
            () = ended => {}
            () = self.lease.lost() => {}
        }
    }

    async fn renew(&self) -> Option<Moment> {
        let lease = self.intent.settings.lease;
        let clock = self.lease.clock();
        if clock.now().since(self.started) >= self.intent.settings.max_run {
            return None;
        }
        let call = self.field.store.renew(&self.id, &self.attempt, lease);
        match renewal::renew(clock, &self.lease, lease, call).await {
            Renewal::Renewed { next } => Some(next),
            Renewal::Over => None,
            // It was settled while this renewal was on its way.
            Renewal::Lost if self.end.get().is_some() => None,
            Renewal::Lost => {
                tracing::warn!(record = %self.id, fence = %self.begun.fence, "the lease is lost: another may run");
                self.lease.lose();
                None
            }
            Renewal::Unknown { error, next } => {
                crate::seldom!(warn, record = %self.id, error = &error as &dyn std::error::Error, "a renewal failed, will retry");
                Some(next)
            }
        }
    }
}

impl Chore for Flight {
    fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    fn run(self: Arc<Self>) -> BoxFuture<Option<Moment>> {
        Box::pin(async move { self.renew().await })
    }
}

impl Basis for Flight {
    fn id(&self) -> RecordId {
        self.id
    }

    fn fence(&self) -> Fence {
        self.begun.fence
    }

    fn attempt(&self) -> u32 {
        self.begun.number
    }

    fn lease(&self) -> Option<&Lease> {
        Some(&self.lease)
    }

    fn loan(&self) -> Option<&Loan> {
        None
    }
}

const SHARDS: usize = 16;

/// All attempts that run in this process, by record.
#[derive(Debug, Default)]
pub(crate) struct Flights([Mutex<HashTable<Arc<Flight>>>; SHARDS]);

impl Flights {
    fn shard(&self, id: &RecordId) -> &Mutex<HashTable<Arc<Flight>>> {
        &self.0[usize::from(id.as_bytes()[0]) % SHARDS]
    }

    pub(crate) fn get(&self, id: &RecordId) -> Option<Arc<Flight>> {
        self.shard(id).lock().find(id.hash(), |flight| flight.id == *id).cloned()
    }

    /// From now on duplicates find this flight; one before it under the same id has lost its record.
    pub(crate) fn insert(&self, flight: &Arc<Flight>) {
        let mut shard = self.shard(&flight.id).lock();
        let (same, hash) =
            (|other: &Arc<Flight>| other.id == flight.id, |other: &Arc<Flight>| other.id.hash());
        match shard.entry(flight.id.hash(), same, hash) {
            Entry::Occupied(mut found) => *found.get_mut() = Arc::clone(flight),
            Entry::Vacant(free) => {
                free.insert(Arc::clone(flight));
            }
        }
    }

    /// Removes this flight; a successor under the same id stays.
    pub(crate) fn remove(&self, flight: &Arc<Flight>) {
        let mut shard = self.shard(&flight.id).lock();
        if let Ok(found) = shard.find_entry(flight.id.hash(), |other| Arc::ptr_eq(other, flight)) {
            found.remove();
        }
    }
}
