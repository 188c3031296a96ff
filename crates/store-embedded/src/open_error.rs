//! Why a store was not opened, and what to do about it.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::room;

/// The store was not opened, and nothing was changed by the attempt.
///
/// `Display` says what to do next; the cause, where there is one, is the [`source`](Error::source).
///
/// ```
/// use onlyonce_store_embedded::{EmbeddedStore, OpenError};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data");
/// let first = EmbeddedStore::open(&path)?;
/// let second = EmbeddedStore::open(&path).unwrap_err();
/// assert!(matches!(second, OpenError::InUse { .. }));
/// assert!(second.to_string().contains("stop the other process"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The path names something that is not a directory.
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The directory holds something else than a store.
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// The directory can't be written.
    ReadOnly {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another store in this or another process has the directory open.
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The store was written by a newer release.
    Newer {
        /// The directory.
        path: PathBuf,
        /// The version of the store.
        found: u32,
        /// The highest version that this release knows.
        known: u32,
    },
    /// The disk is full.
    Full {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What was acknowledged can't all be read. Opening it anyway would run calls a second time.
    Damaged {
        /// The directory.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// The system refused something.
    Io {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl OpenError {
    /// Sorts an error of the system by what is to be done about it.
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly { path, source }
            }
            _ if room::is_full(&source) => Self::Full { path, source },
            io::ErrorKind::NotADirectory => Self::NotADirectory { path },
            _ => Self::Io { path, source },
        }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotADirectory { path } => write!(
                f,
                "{} is not a directory: name a directory for the store; it is made if it does not exist",
                path.display()
            ),
            Self::Foreign { path } => write!(
                f,
                "{} is not empty and holds no onlyonce store: name an empty directory, or the one of the store",
                path.display()
            ),
            Self::ReadOnly { path, .. } => write!(
                f,
                "{} can't be written: give this user write access to the directory, or name another",
                path.display()
            ),
            Self::InUse { path } => write!(
                f,
                "{} is in use by another onlyonce store: stop the other process, or name another directory",
                path.display()
            ),
            Self::Newer { path, found, known } => write!(
                f,
                "{} has format {found}, and this release knows up to {known}: run the newer release that wrote it",
                path.display()
            ),
            Self::Full { path, .. } => write!(
                f,
                "there is no room left for {}: free disk space and start again; nothing was lost",
                path.display()
            ),
            Self::Damaged { path, what } => write!(
                f,
                "{} is damaged and was not opened, because calls could run a second time: {what}. Keep a copy of the \
                 directory, check the disk, and restore a backup; or move the directory away to start empty, knowing that \
                 earlier calls may then run again",
                path.display()
            ),
            Self::Io { path, .. } => {
                write!(f, "{} could not be opened: see the cause, then start again", path.display())
            }
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::ReadOnly { source, .. } | Self::Full { source, .. } | Self::Io { source, .. } => {
                Some(source)
            }
            _ => None,
        }
    }
}
