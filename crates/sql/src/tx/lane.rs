//! One call of a key at a time in this process, before any connection is taken: duplicates that wait hold nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use onlyonce_core::{ErrorKind, RecordId, Snapshot, StoreError};
use parking_lot::Mutex;
use tokio::sync::watch;

/// How far the call of a key is.
#[derive(Debug, Clone)]
pub(super) enum Stage {
    /// It asks the database.
    Claiming,
    /// It runs; this is what others may see of it.
    Running(Box<Snapshot>),
    /// It has ended: with what is stored, or without a trace.
    Ended(Option<Box<Snapshot>>),
    /// Somebody in another process holds the record, and it waited for that one in vain.
    Held,
    /// It could not claim: why, and what is left of it. Who came meanwhile would only fail in the same way, one after the other.
    Failed(ErrorKind, Arc<str>),
}

/// The calls that are under way in this process, by key.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<HashMap<RecordId, watch::Receiver<Stage>>>);

/// Entering a lane.
pub(super) enum Entered {
    /// Nobody is there: the caller goes first.
    First(Leader),
    /// Somebody is there.
    Behind(watch::Receiver<Stage>),
}

/// Who goes first; dropping it without a word says that nothing was left.
#[derive(Debug)]
pub(super) struct Leader {
    lanes: Arc<Lanes>,
    id: RecordId,
    stage: watch::Sender<Stage>,
}

impl Lanes {
    pub(super) fn enter(self: &Arc<Self>, id: &RecordId) -> Entered {
        match self.0.lock().entry(*id) {
            Entry::Occupied(lane) => Entered::Behind(lane.get().clone()),
            Entry::Vacant(free) => {
                let (stage, behind) = watch::channel(Stage::Claiming);
                free.insert(behind);
                Entered::First(Leader { lanes: Arc::clone(self), id: *id, stage })
            }
        }
    }
}

impl Leader {
    pub(super) fn runs(&self, snapshot: Snapshot) {
        self.stage.send_replace(Stage::Running(Box::new(snapshot)));
    }

    pub(super) fn ended(&self, snapshot: Option<Snapshot>) {
        self.stage.send_replace(Stage::Ended(snapshot.map(Box::new)));
    }

    pub(super) fn held(&self) {
        self.stage.send_replace(Stage::Held);
    }

    pub(super) fn failed(&self, error: &StoreError) {
        let why = format!("the first call with this key could not claim it: {error}");
        self.stage.send_replace(Stage::Failed(error.kind(), why.into()));
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // First the lane is free, then those behind hear of it.
        self.lanes.0.lock().remove(&self.id);
        self.stage.send_if_modified(|stage| match stage {
            Stage::Ended(_) | Stage::Held | Stage::Failed(..) => false,
            Stage::Claiming | Stage::Running(_) => {
                *stage = Stage::Ended(None);
                true
            }
        });
    }
}
