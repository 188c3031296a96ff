//! One call of a key at a time in this process, before any connection is taken: duplicates that wait hold nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use onlyonce_core::{RecordId, Snapshot};
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
}

impl Drop for Leader {
    fn drop(&mut self) {
        // First the lane is free, then those behind hear of it.
        self.lanes.0.lock().remove(&self.id);
        self.stage.send_if_modified(|stage| match stage {
            Stage::Ended(_) => false,
            Stage::Claiming | Stage::Running(_) => {
                *stage = Stage::Ended(None);
                true
            }
        });
    }
}
