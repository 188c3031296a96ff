//! Whether the files that are open are those that a start would find.
//!
//! A directory that is removed, moved or replaced under a process goes on to work for it: what is written goes to files without a name, and
//! is gone with the process. The system says nothing, so names and open files are compared.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use crate::directory::Directory;
use crate::engine::Engine;

/// What a start would look for.
#[derive(Debug)]
pub(crate) struct Presence {
    /// The directory and what never changes in it, each held open so that no other file can have its number.
    held: Vec<(PathBuf, File)>,
    /// Where there is always a journal, though not always the same.
    engine: PathBuf,
}

impl Presence {
    /// Holds what is there now, whatever the working directory of the process becomes.
    pub(crate) fn of(directory: &Directory) -> io::Result<Self> {
        // Elsewhere what is open can't be removed.
        if !cfg!(unix) {
            return Ok(Self { held: Vec::new(), engine: directory.engine() });
        }
        let mut held = Vec::new();
        for path in directory.lasting() {
            let path = std::path::absolute(path)?;
            let file = File::open(&path)?;
            held.push((path, file));
        }
        // The one that is locked: by its name another one may be found already.
        let (lock, locked) = directory.locked()?;
        held.push((std::path::absolute(lock)?, locked));
        Ok(Self { held, engine: std::path::absolute(directory.engine())? })
    }

    /// The first name that leads elsewhere, or to nothing. A look that fails for another reason shows nothing.
    pub(crate) fn missing(&self) -> Option<&std::path::Path> {
        let moved = self.held.iter().find(|(path, file)| is_elsewhere(path, file));
        moved
            .map(|(path, _)| path.as_path())
            .or_else(|| has_no_journal(&self.engine).then_some(&*self.engine))
    }
}

#[cfg(unix)]
fn is_elsewhere(path: &std::path::Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (path.metadata(), file.metadata()) {
        (Ok(named), Ok(open)) => (named.dev(), named.ino()) != (open.dev(), open.ino()),
        (Err(cause), _) => {
            matches!(
                cause.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::StaleNetworkFileHandle
            )
        }
        (_, Err(_)) => false,
    }
}

#[cfg(not(unix))]
fn is_elsewhere(_: &std::path::Path, _: &File) -> bool {
    false
}

/// Whether all journals were removed. A directory that can't be read shows nothing.
fn has_no_journal(engine: &std::path::Path) -> bool {
    let Ok(mut files) = engine.read_dir() else { return false };
    !files.any(|file| file.is_ok_and(|file| Engine::is_journal(&file.path())))
}
