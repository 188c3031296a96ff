//! Reads the engine's journals before the engine does.
//!
//! The engine takes the first entry that it can't read for the torn end of the journal and drops what follows, also in the
//! middle of a journal and without a word; and the header of an entry, with its sequence number, is not covered by its
//! checksum. So before the engine may touch them, every batch is checked here: its framing, its checksum, the order of the
//! sequence numbers, that our own batch numbers have no gap, neither between two journals nor to what the engine's tables
//! hold, and that the engine will skip exactly those that the tables hold. What can't be read is a torn end only if nothing that was
//! acknowledged lies behind it; else the store is not opened, and the journal is left as it was found.

mod batch;
mod tail;

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read as _, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::persisted::Persisted;
use crate::stored::{TAG_BYTES, Tag};
use batch::{Batch, Parsed};
use tail::Tail;

/// Why the journals can't be used.
#[derive(Debug)]
pub(crate) enum JournalError {
    Io(PathBuf, io::Error),
    /// Acknowledged batches can't be read; the text says which and where.
    Damaged(String),
}

/// What the journals hold.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checked {
    /// The last batch, if there is any.
    pub(crate) last: Option<u64>,
}

/// What is known before the journals are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    /// The last batch that is known to have been acknowledged.
    pub(crate) noted: u64,
    /// The last batch that anybody can know of, if that is known.
    pub(crate) up_to: Option<u64>,
    /// The last one that needs no journal.
    pub(crate) persisted: Persisted,
}

/// Checks all journals below `engine`, and cuts off a torn end.
pub(crate) fn check(engine: &Path, tag: &Tag, known: Known) -> Result<Checked, JournalError> {
    let Known { noted, up_to, persisted } = known;
    let journals = journals(engine).map_err(|cause| JournalError::Io(engine.to_owned(), cause))?;
    let mut walk = Walk { tag, noted, up_to, persisted, last: None };
    for (index, path) in journals.iter().enumerate() {
        // One that was begun after the last write has nothing in it yet.
        let mut later = journals[index + 1..].iter();
        let is_active = later.try_fold(true, |all, path| {
            Ok(all && is_blank(path).map_err(|cause| JournalError::Io(path.clone(), cause))?)
        })?;
        walk.journal(path, is_active)?;
    }
    match walk.last {
        Some(last) if last.number < noted => Err(JournalError::Damaged(format!(
            "the journal ends at batch {}, but batch {noted} was acknowledged",
            last.number
        ))),
        last => Ok(Checked { last: last.map(|batch| batch.number) }),
    }
}

/// The journals by age: `0.jnl`, `1.jnl`, and the active one last.
fn journals(engine: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(engine)? {
        let path = entry?.path();
        let number =
            path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse::<u64>().ok());
        if let Some(number) = number {
            found.push((number, path));
        }
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Whether nothing was ever written to this journal.
fn is_blank(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let mut first = [0];
    let read = file.read(&mut first)?;
    Ok(first[..read] == [0][..read] && tail::read(&mut file, &[0; TAG_BYTES])? == Tail::Empty)
}

struct Walk<'a> {
    tag: &'a Tag,
    noted: u64,
    up_to: Option<u64>,
    persisted: Persisted,
    last: Option<Batch>,
}

impl Walk<'_> {
    fn journal(&mut self, path: &Path, is_active: bool) -> Result<(), JournalError> {
        let failed = |cause| JournalError::Io(path.to_owned(), cause);
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut reader = BufReader::with_capacity(1 << 16, file);
        let mut end = 0;
        let mut last_here = None;
        while let Parsed::Batch(batch) = batch::read(&mut reader, length - end, self.tag).map_err(failed)? {
            self.follows(path, end, batch)?;
            if is_active && self.up_to.is_some_and(|up_to| batch.number > up_to) {
                break;
            }
            last_here = Some((end, batch));
            self.last = Some(batch);
            end += batch.length;
        }
        reader.seek(SeekFrom::Start(end)).map_err(failed)?;
        match tail::read(&mut reader, self.tag).map_err(failed)? {
            Tail::Empty => {}
            Tail::Torn(_) if !is_active => return Err(self.unreadable(path, end)),
            Tail::Torn(highest) => self.cut(path, end, highest, reader.get_ref())?,
        }
        match last_here {
            Some((start, batch)) if is_active => {
                rewrite(reader.get_mut(), start, batch.length).map_err(failed)
            }
            _ => Ok(()),
        }
    }

    /// Whether the batch may come after the last one, and after what the tables hold.
    fn follows(&self, path: &Path, at: u64, batch: Batch) -> Result<(), JournalError> {
        let Persisted { batch: persisted, .. } = self.persisted;
        let holds = || format!("{} holds batch {} at byte {at}", path.display(), batch.number);
        match self.last {
            Some(last) if batch.number != last.number + 1 || batch.sequence <= last.sequence => {
                Err(JournalError::Damaged(format!("{}, out of order after batch {}", holds(), last.number)))
            }
            None if batch.number > persisted + 1 => Err(JournalError::Damaged(format!(
                "{}, and those after batch {persisted} are in no journal and in no table",
                holds()
            ))),
            // The engine goes by the sequence number, and would skip a batch that is in no table.
            _ if self.persisted.holds(batch.sequence) != (batch.number <= persisted) => {
                Err(JournalError::Damaged(format!("{}, whose header is not as it was written", holds())))
            }
            _ => Ok(()),
        }
    }

    /// What can't be read is cut off if it was never acknowledged.
    ///
    /// Every batch is synced before the next is written, so a later batch behind the damage proves that the damaged one was
    /// synced; and a journal that was sealed was synced as a whole.
    fn cut(&self, path: &Path, end: u64, highest: Option<u64>, file: &File) -> Result<(), JournalError> {
        // What was acknowledged must be read by now. If no journal holds a batch it may all be in the tables: they are
        // compared with the note when the engine is open.
        let is_all_read = self.last.is_none_or(|last| last.number >= self.noted);
        // What is torn may mention itself, but nothing may come after it.
        let next = self.last.map_or(self.persisted.batch, |last| last.number) + 1;
        let is_torn = is_all_read && highest.is_none_or(|highest| highest <= next);
        if !is_torn {
            return Err(self.unreadable(path, end));
        }
        tracing::info!(journal = %path.display(), from = end, "cutting off a write that was never acknowledged");
        let cut = file.set_len(end).and_then(|()| file.sync_all());
        cut.map_err(|cause| JournalError::Io(path.to_owned(), cause))
    }

    fn unreadable(&self, path: &Path, end: u64) -> JournalError {
        let readable = self.last.map_or(0, |batch| batch.number);
        JournalError::Damaged(format!(
            "{} can't be read from byte {end} on, after batch {readable}, and acknowledged batches follow",
            path.display()
        ))
    }
}

/// Writes the last batch once more and syncs it. After a failed sync the system's cache may hold what the disk does not:
/// what is read back must not be built upon before it is known to be there.
fn rewrite(file: &mut File, start: u64, length: u64) -> io::Result<()> {
    use std::io::Write;
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    file.take(length).read_to_end(&mut bytes)?;
    file.seek(SeekFrom::Start(start))?;
    file.write_all(&bytes)?;
    file.sync_all()
}
