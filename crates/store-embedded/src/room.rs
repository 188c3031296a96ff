//! How much room the disk has, and what an error of the system says about it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// What is written to see whether it can be: more than the bits of room that a disk always has here and there.
const TRIAL_BYTES: usize = 1 << 20;

/// Whether the system refused for want of room: a full disk, or a quota that is used up. An I/O error is another matter.
pub(crate) fn is_full(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// What this user may still write; `None` where the system does not say. Quotas are often not in it.
#[cfg(unix)]
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(not(unix))]
pub(crate) fn free_bytes(_: &Path) -> Option<u64> {
    None
}

/// Writes a file, syncs and removes it: only that tells what a quota allows.
pub(crate) fn try_out(path: &Path) -> io::Result<()> {
    let written = File::create(path).and_then(|mut file| {
        file.write_all(&vec![0; TRIAL_BYTES])?;
        file.sync_all()
    });
    let removed = fs::remove_file(path);
    written.and(removed)
}
