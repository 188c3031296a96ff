//! Why a lock was not given, and what a hook hears of a renewal that failed.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::name::LockName;
use crate::error::{ErrorKind, InputError, StoreError};

/// Why a lock was not given. Nothing ran under it.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else has it, and the wait is over.
    Busy {
        /// How long this caller waited.
        waited: Duration,
        /// When it runs out if its holder does not renew it, as far as anybody knows.
        free_in: Option<Duration>,
    },
    /// Too many callers of this process wait already.
    TooManyWaiters,
    /// [`Locks::close`](super::Locks::close) was called.
    Closed,
    /// The lock was lost while the work ran, which was therefore stopped: [`run_until_lost`](super::Request::run_until_lost).
    Lost,
    /// The backend failed.
    Store(StoreError),
    /// The key or a span can't be used.
    Input(InputError),
}

impl LockError {
    /// Whether the same request may work later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::TooManyWaiters | Self::Lost => true,
            Self::Store(error) => !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Rejected),
            Self::Closed | Self::Input(_) => false,
        }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy { waited, free_in: Some(left) } => {
                write!(
                    f,
                    "somebody else has the lock, after a wait of {waited:?}; unless renewed it is free in {left:?}"
                )
            }
            Self::Busy { waited, free_in: None } => {
                write!(f, "somebody else has the lock, after a wait of {waited:?}")
            }
            Self::TooManyWaiters => {
                f.write_str("too many callers of this process wait for locks; retry later")
            }
            Self::Closed => f.write_str("this instance gives no locks any more: it is closing"),
            Self::Lost => f.write_str("the lock was lost while the work ran, and the work was stopped"),
            Self::Store(_) => f.write_str("the lock was not given, because its backend failed"),
            Self::Input(_) => {
                f.write_str("the lock was not asked for, because its key or a span can't be used")
            }
        }
    }
}

impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(cause) => Some(cause),
            Self::Input(cause) => Some(cause),
            _ => None,
        }
    }
}

impl From<StoreError> for LockError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<InputError> for LockError {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

/// What [`LocksBuilder::on_renewal_failure`](super::LocksBuilder::on_renewal_failure) hears.
#[derive(Debug)]
#[non_exhaustive]
pub enum RenewalFailure<'a> {
    /// The backend did not answer; the renewal is tried again until the lock is over.
    Unknown {
        /// Which lock.
        key: &'a LockName,
        /// How long it still holds.
        remaining: Duration,
        /// What happened.
        error: &'a StoreError,
    },
    /// The lock is lost: the backend said so, or its time was over before an answer came.
    Lost {
        /// Which lock.
        key: &'a LockName,
    },
}
