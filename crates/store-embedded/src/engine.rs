//! The storage engine, as little of it as is needed. Nothing outside this file knows which one it is, except for the check
//! of its [journals](crate::journal).

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::ops::RangeBounds;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use lsm_tree::AbstractTree;

use crate::crash::CrashPoint;
use crate::keys::Key;
use crate::stored::Sealed;

const TREE: &str = "records";

/// How often, and at what distance, a closed engine is looked at.
const CLOSING_TRIES: u32 = 10_000;
const CLOSING_PAUSE: Duration = Duration::from_millis(1);

/// How much memory the engine may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// For parts of its files.
    pub(crate) cache_bytes: u64,
    /// For what was written last; then it becomes a table. Fixed when the store is made.
    pub(crate) buffer_bytes: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Self { cache_bytes: 32 << 20, buffer_bytes: 16 << 20 }
    }
}

/// What went wrong in the engine.
#[derive(Debug)]
pub(crate) enum EngineError {
    Io(io::Error),
    /// The engine can't make sense of what it reads, or gave up with a panic.
    Damaged(String),
    /// The engine has stopped writing after a failure in the background.
    Stopped,
    /// Another process has it open.
    InUse,
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(cause) => cause.fmt(f),
            Self::Damaged(what) => write!(f, "the engine can't read its files: {what}"),
            Self::Stopped => f.write_str("the engine failed in the background, and writes no more"),
            Self::InUse => f.write_str("the engine is in use by another process"),
        }
    }
}

impl std::error::Error for EngineError {}

impl From<fjall::Error> for EngineError {
    fn from(cause: fjall::Error) -> Self {
        match cause {
            // A file is shorter than what was written to it: no repeat will find the rest.
            fjall::Error::Io(cause) | fjall::Error::Storage(fjall::LsmError::Io(cause))
                if cause.kind() == io::ErrorKind::UnexpectedEof =>
            {
                Self::Damaged(format!(
                    "a file is shorter than it was; restore a backup of the directory ({cause})"
                ))
            }
            fjall::Error::Io(cause) | fjall::Error::Storage(fjall::LsmError::Io(cause)) => Self::Io(cause),
            fjall::Error::Poisoned => Self::Stopped,
            fjall::Error::Locked => Self::InUse,
            other => Self::Damaged(format!("{other:?}")),
        }
    }
}

/// Some engines panic over damaged files; then the call failed, and no more.
fn guarded<T>(call: impl FnOnce() -> Result<T, fjall::Error>) -> Result<T, EngineError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => Ok(result?),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(EngineError::Damaged(text.unwrap_or("it panicked").to_owned()))
        }
    }
}

/// One change of a batch: a key, and its value or its deletion.
#[derive(Debug)]
pub(crate) struct Put {
    pub(crate) key: Key,
    pub(crate) value: Option<Sealed>,
}

pub(crate) struct Engine {
    db: Database,
    tree: Keyspace,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Engine {
    /// Makes an empty engine, or opens one.
    pub(crate) fn open(path: &Path, memory: Memory) -> Result<Self, EngineError> {
        guarded(|| {
            // An engine without its lock is whole, but would not be opened.
            if path.is_dir() {
                OpenOptions::new().create(true).append(true).open(path.join("lock"))?;
            }
            let db = Database::builder(path)
                .cache_size(memory.cache_bytes)
                .worker_threads(2)
                .manual_journal_persist(true)
                .journal_compression(CompressionType::None)
                .max_journaling_size(256 << 20)
                .open()?;
            let options = || KeyspaceCreateOptions::default().max_memtable_size(memory.buffer_bytes);
            let tree = db.keyspace(TREE, options)?;
            Ok(Self { db, tree })
        })
    }

    /// Where it keeps its tables.
    pub(crate) fn tables(path: &Path) -> PathBuf {
        path.join("keyspaces")
    }

    /// Whether a file is one of its journals, by its name.
    pub(crate) fn is_journal(file: &Path) -> bool {
        file.extension().is_some_and(|end| end == "jnl")
    }

    /// Closes it, and returns when its threads have let go of the journals in `path`: the last of them writes what it still has.
    pub(crate) fn close(self, path: &Path) -> Result<(), EngineError> {
        drop(self);
        for _ in 0..CLOSING_TRIES {
            if !has_open_journals(path) {
                return Ok(());
            }
            thread::sleep(CLOSING_PAUSE);
        }
        Err(EngineError::Stopped)
    }

    /// The value of `key` in the tables, with the sequence number of the newest batch that is in them. Asked before the
    /// engine opens, which puts what is in the journals before it.
    pub(crate) fn in_tables(path: &Path, key: &[u8]) -> Result<Option<(Bytes, u64)>, EngineError> {
        guarded(|| {
            let path = Self::tables(path).join("1");
            let tree = lsm_tree::Config::new(path, Default::default(), Default::default()).open()?;
            let Some(newest) = tree.get_highest_persisted_seqno() else { return Ok(None) };
            let value = tree.get(key, newest.saturating_add(1))?;
            Ok(value.map(|value| (Bytes::copy_from_slice(&value), newest)))
        })
    }

    /// What must be there before the engine may open: it takes a tree without this file for one that was never finished,
    /// and deletes it.
    pub(crate) fn is_whole(path: &Path) -> bool {
        ["0", "1"].iter().all(|tree| Self::tables(path).join(tree).join("current").is_file())
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        guarded(|| Ok(self.tree.get(key)?.map(|value| Bytes::copy_from_slice(&value))))
    }

    /// Gives every key and value of the range to `visit`, in order, until it has had enough.
    pub(crate) fn scan<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        mut visit: impl FnMut(&[u8], Bytes) -> Visit,
    ) -> Result<(), EngineError> {
        guarded(|| {
            for pair in self.tree.range(range) {
                let (key, value) = pair.into_inner()?;
                if visit(&key, Bytes::copy_from_slice(&value)) == Visit::Enough {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Writes all changes or none, and returns when they are on disk. Nobody reads them before that.
    pub(crate) fn commit(&self, puts: Vec<Put>) -> Result<(), EngineError> {
        self.wait_for_room()?;
        guarded(|| {
            let dies_before_sync = CrashPoint::BeforeSync.is_due();
            let durability = if dies_before_sync { PersistMode::Buffer } else { PersistMode::SyncData };
            let mut batch = self.db.batch().durability(Some(durability));
            let mut bytes = Vec::new();
            for Put { key, value } in puts {
                match value {
                    Some(value) => {
                        bytes.clear();
                        bytes.extend_from_slice(&value.body);
                        bytes.extend_from_slice(&value.checksum);
                        batch.insert(&self.tree, &key[..], &bytes[..]);
                    }
                    None => batch.remove(&self.tree, &key[..]),
                }
            }
            batch.commit()?;
            if dies_before_sync {
                std::process::abort();
            }
            Ok(())
        })
    }

    /// Waits while the engine is behind with its tables. It would wait itself, but for ever if its background has died.
    fn wait_for_room(&self) -> Result<(), EngineError> {
        while self.tree.sealed_memtable_count() >= 3 || self.tree.l0_table_count() >= 16 {
            self.db.persist(PersistMode::Buffer)?;
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Rewrites what is alive, without what was deleted.
    pub(crate) fn compact(&self) -> Result<(), EngineError> {
        self.write_tables()?;
        guarded(|| self.tree.major_compact())
    }

    /// Makes a table of what was written last.
    pub(crate) fn write_tables(&self) -> Result<(), EngineError> {
        guarded(|| self.tree.rotate_memtable())?;
        while self.tree.sealed_memtable_count() > 0 {
            self.db.persist(PersistMode::Buffer)?;
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// Whether this process has a journal open, where the system says so.
fn has_open_journals(path: &Path) -> bool {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return false };
    let files = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    // The system knows the directory by its whole name.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    files.into_iter().any(|file| file.parent() == Some(&path) && Engine::is_journal(&file))
}

/// Whether a scan goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visit {
    More,
    Enough,
}
