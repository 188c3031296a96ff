//! Why a call did not run, or why its answer can't be given.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::error::{ErrorKind, InputError, StoreError};
use crate::record::Answer;

/// Why a call has no answer of its own. Error types of calls are made from it, by `From<Refusal>`.
///
/// ```
/// use onlyonce_core::Refusal;
/// assert!(Refusal::InProgress { retry_after: std::time::Duration::from_secs(1) }.is_retryable());
/// assert!(!Refusal::Mismatch.is_retryable());
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The same call runs right now.
    InProgress {
        /// When asking again makes sense.
        retry_after: Duration,
    },
    /// The call was made before; its answer was not kept.
    Duplicate,
    /// The key was used for a call with another payload.
    Mismatch,
    /// The call was made before, and nobody knows whether it had its effect.
    Unknown {
        /// What was seen of it, if anything.
        evidence: Answer,
        /// When asking again may tell more; `None` if only a person can.
        retry_after: Option<Duration>,
    },
    /// Calls of this credential are numbered in rising order, and a number at least as high came before: it did not run.
    OutOfOrder {
        /// The highest number so far.
        last: u64,
    },
    /// The record was written in a way that this release does not know.
    Unreadable,
    /// The store failed: the call did not run.
    Store(StoreError),
    /// The key, scope, operation or input of the call can't be used: the call did not run.
    Input(InputError),
}

impl Refusal {
    /// Whether the same call, sent again later, may get an answer without a person's help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::InProgress { .. } => true,
            Self::Store(error) => !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Rejected),
            Self::Unknown { retry_after, .. } => retry_after.is_some(),
            Self::Duplicate
            | Self::Mismatch
            | Self::OutOfOrder { .. }
            | Self::Unreadable
            | Self::Input(_) => false,
        }
    }

    pub(crate) fn unknown() -> Self {
        Self::Unknown { evidence: Answer::none(), retry_after: None }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InProgress { .. } => "the same call is still running; retry with the same key",
            Self::Duplicate => "the call was made before, and its answer was not kept",
            Self::Mismatch => "the key was used before with another payload; use a new key for a new call",
            Self::Unknown { .. } => {
                "the call was made before, and nobody knows whether it had its effect; look before you act, then resolve the record"
            }
            Self::OutOfOrder { .. } => "a call with a higher number came before; number calls in rising order",
            Self::Unreadable => "the record of this call was written in a way that this release does not know",
            Self::Store(_) => "the call did not run, or what it did was undone, because its record could not be kept",
            Self::Input(_) => "the call did not run, because its key, scope, operation or input can't be used",
        })
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(cause) => Some(cause),
            Self::Input(cause) => Some(cause),
            _ => None,
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<InputError> for Refusal {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}
