//! What really happened, outside of any store: the code under test can't make it look better than it was.

mod file;

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use file::FileLedger;

/// One executed effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// The key of the call whose effect it is.
    pub key: String,
    /// Who did it: an attempt, a fence, a process. Under a [`History`](crate::History) the answer that it gave, unlike that of any other.
    pub by: String,
}

/// An append-only record of effects. Clones write to the same.
///
/// ```
/// use onlyonce_testkit::Ledger;
/// let ledger = Ledger::in_memory();
/// ledger.record("order-42", "fence 7")?;
/// assert_eq!(ledger.effects()?.len(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Ledger(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Memory(Arc<Mutex<Vec<Effect>>>),
    File(Arc<FileLedger>),
}

impl Ledger {
    /// A ledger of this process.
    #[must_use]
    pub fn in_memory() -> Self {
        Self(Kind::Memory(Arc::default()))
    }

    /// A ledger in a file, for several processes, which outlives them when they are killed: one line an effect, each
    /// appended by one write.
    ///
    /// # Errors
    /// If the file can't be opened.
    pub fn in_file(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self(Kind::File(Arc::new(FileLedger::open(path.as_ref())?))))
    }

    /// Writes down an effect. Call it where the effect happens, not where it is reported.
    ///
    /// # Errors
    /// If the file can't be written to.
    pub fn record(&self, key: &str, by: &str) -> io::Result<()> {
        match &self.0 {
            Kind::Memory(effects) => {
                effects.lock().push(Effect { key: key.to_owned(), by: by.to_owned() });
                Ok(())
            }
            Kind::File(file) => file.append(key, by),
        }
    }

    /// All effects so far, in the order in which they were written down.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn effects(&self) -> io::Result<Vec<Effect>> {
        match &self.0 {
            Kind::Memory(effects) => Ok(effects.lock().clone()),
            Kind::File(file) => file.read(),
        }
    }

    /// How many effects a key had so far.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn count(&self, key: &str) -> io::Result<usize> {
        Ok(self.effects()?.iter().filter(|effect| effect.key == key).count())
    }
}
