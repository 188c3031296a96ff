//! Waiting beside somebody else's attempt.

use std::time::Duration;

use super::Field;
use crate::clock::Moment;
use crate::flight::Flight;
use crate::key::RecordId;
use crate::policy::{Decision, decide};
use crate::record::{Revision, Snapshot};
use crate::settings::Intent;

/// How long one caller still waits, and for which attempt.
pub(super) struct Patience<'a> {
    field: &'a Field,
    until: Moment,
    /// The attempt by its number: its fence may still rise, where a store gives it in two steps.
    waits_for: Option<u32>,
    last: Option<Revision>,
    pause: Duration,
}

impl<'a> Patience<'a> {
    pub(super) fn new(field: &'a Field, intent: &Intent, now: Moment) -> Self {
        let until = now.plus(intent.settings.wait);
        Self { field, until, waits_for: None, last: None, pause: Duration::from_millis(1) }
    }

    /// What is left, if this caller may wait for this attempt: not if it already waited for another one, or a release would
    /// let a thousand waiters run one after the other.
    fn left_for(&mut self, snapshot: &Snapshot) -> Option<Duration> {
        let left = self.until.since(self.field.clock.now());
        let same = *self.waits_for.get_or_insert(snapshot.attempts) == snapshot.attempts;
        (same && !left.is_zero()).then_some(left)
    }

    /// Waits for an attempt in this process. `None` if only the store can tell what is there now.
    pub(super) async fn beside(&mut self, flight: &Flight, intent: &Intent) -> Option<Snapshot> {
        let snapshot = flight.snapshot()?;
        let Decision::InProgress { .. } = decide(&snapshot, &intent.fingerprint, intent.settings.rules())
        else {
            return Some(snapshot);
        };
        let Some(left) = self.left_for(&snapshot) else { return Some(snapshot) };
        let Ok(_place) = self.field.waiters.try_acquire() else { return Some(snapshot) };
        tokio::select! {
            () = flight.over() => {}
            () = self.field.clock.sleep(left) => {}
        }
        flight.snapshot()
    }

    /// Waits for an attempt elsewhere. False if there is no time left for it.
    pub(super) async fn beside_store(
        &mut self,
        id: &RecordId,
        snapshot: &Snapshot,
        lease_left: Duration,
    ) -> bool {
        let Some(left) = self.left_for(snapshot) else { return false };
        let Ok(_place) = self.field.waiters.try_acquire() else { return false };
        let revision = snapshot.revision();
        if self.last.replace(revision) == Some(revision) {
            // The store woke us for nothing.
            self.field.clock.sleep(self.pause.min(left)).await;
            self.pause = (self.pause * 2).min(Duration::from_millis(250));
        }
        self.field.store.changed(id, revision, left.min(lease_left)).await;
        true
    }
}
