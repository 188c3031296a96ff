//! Settings of a store.

use std::path::PathBuf;
use std::sync::Arc;

use onlyonce_core::{Clock, SystemClock};

use crate::engine::Memory;
use crate::limits::{KeepFree, Limits};
use crate::open_error::OpenError;
use crate::store::EmbeddedStore;

/// How to open an [`EmbeddedStore`]; made by [`EmbeddedStore::builder`].
///
/// ```
/// use onlyonce_store_embedded::EmbeddedStore;
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data");
/// let store = EmbeddedStore::builder(path).max_records(1_000_000).keep_free(16 << 20).queue(256).open()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    pub(crate) path: PathBuf,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
    pub(crate) queue: usize,
    pub(crate) memory: Memory,
}

impl Builder {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            clock: Arc::new(SystemClock),
            limits: Limits::default(),
            queue: 1024,
            memory: Memory::default(),
        }
    }

    /// Takes time from `clock`.
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Refuses new records beyond this number; without it, the disk is the limit.
    pub fn max_records(mut self, records: u64) -> Self {
        self.limits.max_records = records;
        self
    }

    /// Refuses to keep an answer that is larger than this; 64 MiB by default.
    pub fn max_answer_bytes(mut self, bytes: usize) -> Self {
        // The engine counts the bytes of a value with 32 bits.
        self.limits.max_answer_bytes = bytes.min(1 << 30);
        self
    }

    /// Refuses new records while the disk has less than this many bytes left, so that calls that run can still settle;
    /// 64 MiB by default.
    pub fn keep_free(mut self, bytes: u64) -> Self {
        self.limits.keep_free = KeepFree(bytes);
        self
    }

    /// How many operations may wait for the writer; others wait until there is room. 1024 by default.
    pub fn queue(mut self, operations: usize) -> Self {
        self.queue = operations.max(1);
        self
    }

    /// How much memory may hold parts of the files; 32 MiB by default.
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.memory.cache_bytes = bytes;
        self
    }

    /// How much memory may hold what was written last before it becomes a table; 16 MiB by default, at least 16 KiB. It is
    /// fixed when the store is made.
    pub fn buffer_bytes(mut self, bytes: u64) -> Self {
        self.memory.buffer_bytes = bytes.max(16 << 10);
        self
    }

    /// Opens the store. This blocks: call it at the start, or on a thread that may.
    ///
    /// # Errors
    /// See [`OpenError`], whose text says what to do.
    pub fn open(self) -> Result<EmbeddedStore, OpenError> {
        EmbeddedStore::with(self)
    }
}
