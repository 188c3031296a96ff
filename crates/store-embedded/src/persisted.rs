//! How much of what was written needs no journal any more.

use crate::directory::Directory;
use crate::engine::Engine;
use crate::keys;
use crate::open_error::OpenError;
use crate::stored::{Tag, Totals};

/// What the engine's tables hold: every batch up to one, whole.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Persisted {
    /// The number of the last batch in the tables; 0 if there is none.
    pub(crate) batch: u64,
    /// The engine's number of the same batch.
    sequence: Option<u64>,
}

impl Persisted {
    /// Reads it from the tables, before the engine mixes them with its journals.
    pub(crate) fn read(directory: &Directory, tag: &Tag) -> Result<Self, OpenError> {
        let last = Engine::in_tables(&directory.engine(), keys::LAST);
        let Some((totals, sequence)) = last.map_err(|cause| directory.engine_failed(cause))? else {
            return Ok(Self::default());
        };
        let totals = Totals::decode(tag, totals)
            .map_err(|cause| OpenError::damaged(directory.path(), format!("the last batch: {cause}")))?;
        Ok(Self { batch: totals.batch, sequence: Some(sequence) })
    }

    /// Whether the engine will find the batch of this sequence number in its tables, and skip it in the journal.
    pub(crate) fn holds(&self, sequence: u64) -> bool {
        self.sequence.is_some_and(|newest| sequence <= newest)
    }
}
