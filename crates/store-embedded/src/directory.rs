//! The directory of a store: who may use it, what it is, and how it comes to be.
//!
//! ```text
//! lock      held while the store is open
//! format    the version, and the tag that marks this store's batches; written last, so its presence says "complete"
//! engine/   the records
//! noted     the last acknowledged batch
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::crash::CrashPoint;
use crate::engine::{Engine, EngineError, Memory};
use crate::format::Format;
use crate::open_error::OpenError;

const LOCK: &str = "lock";
const FORMAT: &str = "format";
const FORMAT_NEW: &str = "format.new";
const ENGINE: &str = "engine";
const ENGINE_NEW: &str = "engine.new";
const NOTED: &str = "noted";
const TRIAL: &str = "trial";

#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    lock: File,
}

/// Makes the directory for its owner alone: answers may hold what other users of the machine must not see. One that
/// is there keeps the rights that somebody gave it.
fn make(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

impl Directory {
    /// Takes the directory for this store alone; makes it if it does not exist.
    pub(crate) fn lock(path: &Path) -> Result<Self, OpenError> {
        let failed = |cause| OpenError::io(path, cause);
        if path.exists() && !path.is_dir() {
            return Err(OpenError::NotADirectory { path: path.to_owned() });
        }
        make(path).map_err(failed)?;
        refuse_foreign(path)?;
        let lock = path.join(LOCK);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(lock).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), lock }),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(cause)) => Err(failed(cause)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn engine(&self) -> PathBuf {
        self.path.join(ENGINE)
    }

    /// A file that is written to see whether there is room.
    pub(crate) fn trial(&self) -> PathBuf {
        self.path.join(TRIAL)
    }

    pub(crate) fn noted(&self) -> PathBuf {
        self.path.join(NOTED)
    }

    /// The file that is locked, and its name.
    pub(crate) fn locked(&self) -> io::Result<(PathBuf, File)> {
        Ok((self.path.join(LOCK), self.lock.try_clone()?))
    }

    /// The directory and what else in it stays the same file as long as the store is open.
    pub(crate) fn lasting(&self) -> Vec<PathBuf> {
        vec![
            self.path.clone(),
            self.path.join(FORMAT),
            self.noted(),
            self.engine(),
            Engine::tables(&self.engine()),
        ]
    }

    /// The format of the store in this directory; if there is none, one is made at the `first` opening.
    pub(crate) fn format(&self, memory: Memory, first: bool) -> Result<Format, OpenError> {
        let format = match fs::read(self.path.join(FORMAT)) {
            Ok(text) => Format::parse(&self.path, &text)?,
            Err(cause) if first && cause.kind() == io::ErrorKind::NotFound => self.create(memory)?,
            Err(cause) => return Err(self.failed(cause)),
        };
        if !Engine::is_whole(&self.engine()) {
            return Err(OpenError::damaged(&self.path, format!("files are missing in `{ENGINE}`")));
        }
        Ok(format)
    }

    /// Makes an empty store. Without a format nobody was ever served, so what an interrupted creation left may go.
    fn create(&self, memory: Memory) -> Result<Format, OpenError> {
        if self.noted().exists() {
            return Err(OpenError::damaged(&self.path, format!("the file `{FORMAT}` is missing")));
        }
        let new = self.path.join(ENGINE_NEW);
        for leftover in [&new, &self.engine()] {
            match fs::remove_dir_all(leftover) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(self.failed(cause)),
                _ => {}
            }
        }
        drop(Engine::open(&new, memory).map_err(|cause| self.engine_failed(cause))?);
        fs::rename(&new, self.engine()).map_err(|cause| self.failed(cause))?;
        CrashPoint::Creating.pass();
        let format = Format::new();
        self.write_format(&format).map_err(|cause| self.failed(cause))?;
        Ok(format)
    }

    fn write_format(&self, format: &Format) -> io::Result<()> {
        sync_directory(&self.path)?;
        let new = self.path.join(FORMAT_NEW);
        let mut file = File::create(&new)?;
        file.write_all(format.to_string().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, self.path.join(FORMAT))?;
        sync_directory(&self.path)
    }

    pub(crate) fn failed(&self, cause: io::Error) -> OpenError {
        OpenError::io(&self.path, cause)
    }

    pub(crate) fn engine_failed(&self, cause: EngineError) -> OpenError {
        match cause {
            EngineError::Io(cause) => self.failed(cause),
            // Somebody has removed our own lock, and not the engine's: it is not damaged.
            EngineError::InUse => OpenError::InUse { path: self.path.clone() },
            other => OpenError::damaged(&self.path, other.to_string()),
        }
    }
}

/// Nothing is written into a directory that holds something else.
fn refuse_foreign(path: &Path) -> Result<(), OpenError> {
    let ours = [LOCK, FORMAT, FORMAT_NEW, ENGINE, ENGINE_NEW, NOTED, TRIAL];
    if path.join(FORMAT).exists() {
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(|cause| OpenError::io(path, cause))? {
        let name = entry.map_err(|cause| OpenError::io(path, cause))?.file_name();
        // A file system puts this one into the root of a fresh disk.
        if !ours.iter().any(|our| *our == name) && name != "lost+found" {
            return Err(OpenError::Foreign { path: path.to_owned() });
        }
    }
    Ok(())
}

/// Makes new names in a directory durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}
