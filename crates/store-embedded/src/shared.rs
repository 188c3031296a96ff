//! What the writer and the readers share.

use std::fmt;
use std::ops::Deref;

use onlyonce_core::machine::Record;
use onlyonce_core::{ErrorKind, RecordId, StoreError};
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};

use crate::directory::Directory;
use crate::engine::{Engine, EngineError};
use crate::index::Index;
use crate::keys;
use crate::leases::Leases;
use crate::limits::KeepFree;
use crate::open_error::OpenError;
use crate::presence::Presence;
use crate::room;
use crate::stored::decode_record;
use crate::time::{Now, Time};

pub(crate) const BACKEND: &str = "embedded";

/// With less than this the engine may have stopped for want of room: it does not say why.
const LITTLE_ROOM: u64 = 64 << 20;

#[derive(Debug)]
pub(crate) struct Shared {
    /// `None` while it is opened again, and if that failed.
    pub(crate) engine: RwLock<Option<Engine>>,
    pub(crate) leases: Leases,
    pub(crate) index: Mutex<Index>,
    pub(crate) time: Time,
    pub(crate) keep_free: KeepFree,
    stopped: RwLock<Option<Stop>>,
    presence: Presence,
    /// Last, so that the directory is free only when the engine is closed.
    pub(crate) directory: Directory,
}

/// Why nothing is written any more.
#[derive(Debug, Clone)]
pub(crate) enum Stop {
    /// There is no room. What is there can be read, and the store is opened again when there is room.
    Full(String),
    /// The directory is not where a start would look for it. What is still open can be read, and a new start would begin with nothing.
    Gone(String),
    /// Nobody knows what the disk holds: not before the process is started again.
    ForGood(String),
    /// Both: nobody knows what the files that are open hold, and a new start would begin with nothing.
    GoneForGood(String),
}

impl Stop {
    /// What a failed write means.
    pub(crate) fn because(cause: &EngineError, shared: &Shared) -> Self {
        if let Some(gone) = shared.gone() {
            return gone;
        }
        let why = cause.to_string();
        match cause {
            EngineError::Io(cause) if room::is_full(cause) => Self::Full(why),
            EngineError::Stopped if shared.has_little_room() => Self::Full(why),
            EngineError::Io(_) | EngineError::Damaged(_) | EngineError::Stopped | EngineError::InUse => {
                Self::ForGood(why)
            }
        }
    }
}

impl From<OpenError> for Stop {
    fn from(refused: OpenError) -> Self {
        let why = refused.to_string();
        match refused {
            OpenError::Full { .. } => Self::Full(why),
            _ => Self::ForGood(why),
        }
    }
}

impl Shared {
    pub(crate) fn new(
        engine: Engine,
        index: Index,
        time: Time,
        keep_free: KeepFree,
        directory: Directory,
        presence: Presence,
    ) -> Self {
        let (engine, leases, index) = (RwLock::new(Some(engine)), Leases::new(), Mutex::new(index));
        Self { engine, leases, index, time, keep_free, stopped: RwLock::new(None), presence, directory }
    }

    /// From now on nothing is written: after a failed write or sync nobody knows what the disk holds.
    pub(crate) fn stop(&self, why: Stop) {
        // Whoever is told that it stopped for good starts the process again, so it is looked for before.
        let why = match (why, self.missing()) {
            (Stop::ForGood(why), Some(missing)) => Stop::GoneForGood(format!("{why}; and {missing}")),
            (why, _) => why,
        };
        let mut stopped = self.stopped.write();
        let why = match (&*stopped, why) {
            (Some(Stop::ForGood(why)), Stop::Gone(gone)) => Stop::GoneForGood(format!("{why}; and {gone}")),
            (Some(Stop::Gone(gone)), Stop::ForGood(why)) => Stop::GoneForGood(format!("{why}; and {gone}")),
            (Some(Stop::GoneForGood(_)), _)
            | (Some(Stop::Gone(_)), Stop::Full(_) | Stop::Gone(_))
            | (Some(Stop::ForGood(_)), Stop::Full(_) | Stop::ForGood(_)) => return,
            (_, why) => why,
        };
        let directory = self.directory.path().display();
        match (&*stopped, &why) {
            (Some(Stop::Full(_)), Stop::Full(_)) => {}
            (_, Stop::Full(why)) => {
                tracing::error!(%directory, why, "the disk is full; the embedded store waits for room, and writes nothing until then")
            }
            (_, Stop::Gone(why) | Stop::GoneForGood(why)) => {
                tracing::error!(%directory, why, "the directory of the embedded store is gone, and it takes nothing new: bring the directory back before this process is started again, or calls that were answered run again")
            }
            (_, Stop::ForGood(why)) => {
                tracing::error!(%directory, why, "the embedded store has stopped until this process is started again")
            }
        }
        *stopped = Some(why);
    }

    /// Stops if the directory is no longer what a start would find.
    pub(crate) fn look_for_directory(&self) {
        if let Some(gone) = self.gone() {
            self.stop(gone);
        }
    }

    fn gone(&self) -> Option<Stop> {
        self.missing().map(Stop::Gone)
    }

    /// What of the directory is not where a start would look for it.
    fn missing(&self) -> Option<String> {
        let missing = self.presence.missing()?;
        Some(format!("{} was removed, moved or replaced", missing.display()))
    }

    /// There is room again, and the store was opened anew.
    pub(crate) fn go_on(&self) {
        // Its directory may have been found gone meanwhile.
        if self.stopped.write().take_if(|stop| matches!(stop, Stop::Full(_))).is_some() {
            tracing::info!(directory = %self.directory.path().display(), "there is room again; the embedded store was opened anew");
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        matches!(*self.stopped.read(), Some(Stop::Full(_)))
    }

    /// Whether it is worth to open the store again.
    pub(crate) fn has_room(&self) -> bool {
        self.keep_free.check(self.directory.path()).is_ok() && room::try_out(&self.directory.trial()).is_ok()
    }

    fn has_little_room(&self) -> bool {
        // Not `keep_free`: where that is large, a failure above it has another cause.
        room::free_bytes(self.directory.path()).is_some_and(|free| free < LITTLE_ROOM)
            || room::try_out(&self.directory.trial()).is_err_and(|cause| room::is_full(&cause))
    }

    /// Refuses whatever writes, once the store has stopped.
    pub(crate) fn check(&self, call: &'static str) -> Result<(), StoreError> {
        match &*self.stopped.read() {
            None => Ok(()),
            Some(stop) => Err(self.refused(stop, call)),
        }
    }

    /// Refuses whatever reads, once the store has stopped for good.
    pub(crate) fn check_reading(&self, call: &'static str) -> Result<(), StoreError> {
        match &*self.stopped.read() {
            Some(stop @ (Stop::ForGood(_) | Stop::GoneForGood(_))) => Err(self.refused(stop, call)),
            _ => Ok(()),
        }
    }

    /// The answer to a call that the store can't take.
    pub(crate) fn refusal(&self, call: &'static str) -> StoreError {
        self.check(call).err().unwrap_or_else(|| StoreError::unavailable(BACKEND, call, self.stop_reason()))
    }

    fn refused(&self, stop: &Stop, call: &'static str) -> StoreError {
        let kind = match stop {
            // A retry does not help before somebody acts. But a settlement is repeated to the end: only this process knows it.
            Stop::ForGood(_) if call != "settle" => ErrorKind::Rejected,
            // Nor here; but whoever asks for readiness must not start the process again.
            Stop::Gone(_) | Stop::GoneForGood(_) if !matches!(call, "settle" | "ready") => {
                ErrorKind::Rejected
            }
            Stop::Full(_) | Stop::Gone(_) | Stop::GoneForGood(_) | Stop::ForGood(_) => ErrorKind::Unavailable,
        };
        StoreError::new(kind, BACKEND, call, self.reason(Some(stop)))
    }

    /// What happened, and what to do.
    pub(crate) fn stop_reason(&self) -> String {
        self.reason(self.stopped.read().as_ref())
    }

    fn reason(&self, stop: Option<&Stop>) -> String {
        let path = self.directory.path().display();
        match stop {
            Some(Stop::Full(why)) => format!(
                "the disk of {path} is full: {why}. Free disk space: the store then goes on by itself. What was acknowledged is \
                 kept, and is replayed meanwhile"
            ),
            Some(Stop::Gone(why)) => format!(
                "the store in {path} takes nothing new: {why}. Bring the directory back, then start this process again. If it is \
                 where it was, just start this process again. What was acknowledged is replayed meanwhile"
            ),
            Some(Stop::GoneForGood(why)) => format!(
                "the store in {path} has stopped: {why}. Bring the directory back, then start this process again. If it is where \
                 it was, just start this process again"
            ),
            Some(Stop::ForGood(why)) => format!(
                "the store in {path} has stopped: {why}. Mend the disk, then start this process again; everything that was \
                 acknowledged is kept"
            ),
            None => format!("the writer of the store in {path} is gone: start this process again"),
        }
    }

    pub(crate) fn engine_error(call: &'static str, cause: EngineError) -> StoreError {
        let kind = match &cause {
            EngineError::Damaged(_) => ErrorKind::Corrupt,
            EngineError::Io(_) | EngineError::Stopped | EngineError::InUse => ErrorKind::Unavailable,
        };
        StoreError::new(kind, BACKEND, call, cause)
    }

    /// The store for one read, which has to be short: whoever opens it again waits for it.
    pub(crate) fn open(&self, call: &'static str) -> Result<Open<'_>, StoreError> {
        let engine = RwLockReadGuard::try_map(self.engine.read(), Option::as_ref);
        let engine = engine.map_err(|_| StoreError::unavailable(BACKEND, call, self.stop_reason()))?;
        Ok(Open { shared: self, engine })
    }
}

/// A store that stays open while this is held. Not to be asked for twice by one thread.
pub(crate) struct Open<'a> {
    shared: &'a Shared,
    pub(crate) engine: MappedRwLockReadGuard<'a, Engine>,
}

impl fmt::Debug for Open<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").finish_non_exhaustive()
    }
}

impl Deref for Open<'_> {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        self.shared
    }
}

impl Open<'_> {
    /// The record as it is on disk; its lease is that of the time when it was written.
    pub(crate) fn load(&self, id: &RecordId, call: &'static str) -> Result<Option<Record>, StoreError> {
        let bytes = self.engine.get(&keys::record(id)).map_err(|cause| Shared::engine_error(call, cause))?;
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
