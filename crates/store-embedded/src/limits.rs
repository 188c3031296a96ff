//! What the store refuses, so that the disk does not refuse first.

use std::path::Path;

use onlyonce_core::{ErrorKind, StoreError};

use crate::shared::BACKEND;

/// The disk is asked again after this much was written, or at once while it is nearly full.
const LOOK_EVERY_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) max_records: u64,
    pub(crate) max_answer_bytes: usize,
    pub(crate) keep_free: u64,
    written: u64,
    has_room: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_records: u64::MAX,
            max_answer_bytes: 64 << 20,
            keep_free: 64 << 20,
            written: LOOK_EVERY_BYTES,
            has_room: true,
        }
    }
}

impl Limits {
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
    }

    pub(crate) fn check_answer(&self, bytes: usize, call: &'static str) -> Result<(), StoreError> {
        if bytes <= self.max_answer_bytes {
            return Ok(());
        }
        let why = format!("the answer has {bytes} bytes, and max_answer_bytes is {}", self.max_answer_bytes);
        Err(StoreError::new(ErrorKind::Rejected, BACKEND, call, why))
    }

    /// Refuses new records while the disk is nearly full: what is left is kept for the answers of calls that run.
    pub(crate) fn check_disk(&mut self, path: &Path, call: &'static str) -> Result<(), StoreError> {
        if self.written >= LOOK_EVERY_BYTES || !self.has_room {
            self.written = 0;
            self.has_room = free_bytes(path).is_none_or(|free| free >= self.keep_free);
        }
        if self.has_room {
            return Ok(());
        }
        let why = format!(
            "the disk of {} has less than {} MiB left: free space, or lower keep_free. Calls that run can still settle",
            path.display(),
            self.keep_free >> 20
        );
        Err(StoreError::unavailable(BACKEND, call, why))
    }
}

/// What this user may still write; `None` where the system does not say.
#[cfg(unix)]
fn free_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}
