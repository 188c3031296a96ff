//! What the store refuses, so that the disk does not refuse first.

use std::path::Path;
use std::time::Duration;

use onlyonce_core::{ErrorKind, Moment, StoreError};

use crate::room;
use crate::shared::BACKEND;

/// The disk is asked again after this much was written, or this long ago, because others write too; or at once while it is nearly full.
const LOOK_EVERY_BYTES: u64 = 1 << 20;
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) max_records: u64,
    pub(crate) max_answer_bytes: usize,
    pub(crate) keep_free: KeepFree,
    written: u64,
    looked: Moment,
    has_room: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_records: u64::MAX,
            max_answer_bytes: 64 << 20,
            keep_free: KeepFree(64 << 20),
            written: LOOK_EVERY_BYTES,
            looked: Moment::from_micros(0),
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

    /// Refuses new records while the disk is nearly full.
    pub(crate) fn check_disk(&mut self, path: &Path, now: Moment) -> Result<(), StoreError> {
        let is_fresh = self.written < LOOK_EVERY_BYTES && now.since(self.looked) < LOOK_EVERY;
        if is_fresh && self.has_room {
            return Ok(());
        }
        (self.written, self.looked) = (0, now);
        let checked = self.keep_free.check(path);
        self.has_room = checked.is_ok();
        checked
    }
}

/// So many bytes of the disk are kept for the answers of calls that run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeepFree(pub(crate) u64);

impl KeepFree {
    pub(crate) fn check(self, path: &Path) -> Result<(), StoreError> {
        if room::free_bytes(path).is_none_or(|free| free >= self.0) {
            return Ok(());
        }
        let why = format!(
            "the disk of {} has less than {} MiB left: free space, or lower keep_free. Calls that run can still settle",
            path.display(),
            self.0 >> 20
        );
        Err(StoreError::unavailable(BACKEND, "begin", why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The disk as it is, of which others have used up so much that less than is to be kept is left.
    fn fill(limits: &mut Limits) {
        limits.keep_free = KeepFree(u64::MAX);
    }

    #[cfg(unix)]
    #[test]
    fn a_disk_that_others_fill_is_noticed_within_a_second_however_little_is_written_here() {
        let (path, start) = (Path::new("/"), Moment::from_micros(1_000_000_000));
        let mut limits = Limits { keep_free: KeepFree(0), ..Limits::default() };
        assert!(limits.check_disk(path, start).is_ok());
        fill(&mut limits);
        limits.wrote(100);
        let just_before = start.plus(LOOK_EVERY - Duration::from_micros(1));
        assert!(limits.check_disk(path, just_before).is_ok(), "the disk is not asked at every call");
        let refused = limits.check_disk(path, start.plus(LOOK_EVERY)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        // And as soon as there is room again, it goes on.
        limits.keep_free = KeepFree(0);
        assert!(limits.check_disk(path, start.plus(LOOK_EVERY)).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn a_disk_that_is_filled_from_here_is_looked_at_after_every_mebibyte() {
        let (path, now) = (Path::new("/"), Moment::from_micros(1_000_000_000));
        let mut limits = Limits { keep_free: KeepFree(0), ..Limits::default() };
        assert!(limits.check_disk(path, now).is_ok());
        fill(&mut limits);
        limits.wrote(LOOK_EVERY_BYTES as usize - 1);
        assert!(limits.check_disk(path, now).is_ok());
        limits.wrote(1);
        assert!(limits.check_disk(path, now).is_err());
    }
}
