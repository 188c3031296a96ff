//! What the writer and the readers share.

use std::sync::OnceLock;

use onlyonce_core::machine::Record;
use onlyonce_core::{ErrorKind, RecordId, StoreError};
use parking_lot::Mutex;

use crate::directory::Directory;
use crate::engine::{Engine, EngineError};
use crate::index::Index;
use crate::keys;
use crate::leases::Leases;
use crate::stored::decode_record;
use crate::time::{Now, Time};

pub(crate) const BACKEND: &str = "embedded";

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) leases: Leases,
    pub(crate) index: Mutex<Index>,
    pub(crate) time: Time,
    stopped: OnceLock<String>,
    /// Last, so that the directory is free only when the engine is closed.
    pub(crate) directory: Directory,
}

impl Shared {
    pub(crate) fn new(engine: Engine, index: Index, time: Time, directory: Directory) -> Self {
        let (leases, index, stopped) = (Leases::new(), Mutex::new(index), OnceLock::new());
        Self { engine, leases, index, time, stopped, directory }
    }

    /// From now on every call fails: after a failed sync nobody knows what the disk holds.
    pub(crate) fn stop(&self, why: &str) {
        let first = self.stopped.set(why.to_owned()).is_ok();
        if first {
            tracing::error!(directory = %self.directory.path().display(), why, "the embedded store has stopped");
        }
    }

    /// Refuses once the store has stopped.
    pub(crate) fn check(&self, call: &'static str) -> Result<(), StoreError> {
        match self.stopped.get() {
            None => Ok(()),
            Some(_) => Err(StoreError::unavailable(BACKEND, call, self.stop_reason())),
        }
    }

    /// What happened, and what to do.
    pub(crate) fn stop_reason(&self) -> String {
        format!(
            "the store in {} has stopped: {}. Free disk space or mend the disk, then start this process again; \
             everything that was acknowledged is kept",
            self.directory.path().display(),
            self.stopped.get().map_or("its writer is gone", String::as_str)
        )
    }

    pub(crate) fn engine_error(call: &'static str, cause: EngineError) -> StoreError {
        let kind = match &cause {
            EngineError::Damaged(_) => ErrorKind::Corrupt,
            EngineError::Io(_) | EngineError::Stopped => ErrorKind::Unavailable,
        };
        StoreError::new(kind, BACKEND, call, cause)
    }

    /// The record as it is on disk; its lease is that of the time when it was written.
    pub(crate) fn load(&self, id: &RecordId, call: &'static str) -> Result<Option<Record>, StoreError> {
        let bytes = self.engine.get(&keys::record(id)).map_err(|cause| Self::engine_error(call, cause))?;
        let record = bytes.map(|bytes| decode_record(id, bytes)).transpose();
        record.map_err(|cause| {
            let what = format!(
                "record {id}: {cause}. Nothing runs under this key until it is restored from a backup or expires"
            );
            StoreError::corrupt(BACKEND, call, what)
        })
    }

    /// The record as it is now, expired or not.
    ///
    /// A lease is entered before its record is written and ended after its settlement is, so a record without a lease is
    /// an orphan only if it is still the same after the leases were looked at.
    pub(crate) fn read(
        &self,
        id: &RecordId,
        call: &'static str,
    ) -> Result<Option<(Record, Now)>, StoreError> {
        let mut seen = None;
        loop {
            let Some(record) = self.load(id, call)? else { return Ok(None) };
            let (lease, now) = self.leases.look(id, &self.time);
            let has_lease = lease.is_some_and(|lease| lease.fence == record.fence);
            if record.settled.is_some() || has_lease || seen == Some(record.fence) {
                return Ok(Some((self.time.with_lease(record, lease, now), now)));
            }
            seen = Some(record.fence);
        }
    }
}
