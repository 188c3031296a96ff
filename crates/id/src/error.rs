//! Why there is no id.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::grants::GrantError;

/// Why there is no id. Never a panic, and never an id that might exist already.
#[derive(Debug)]
#[non_exhaustive]
pub enum IdError {
    /// This millisecond's ids are used up; the async calls wait instead.
    Ceiling,
    /// The clock was set back by more than is bridged (2 s). Ids come again when it has caught up.
    ClockWentBack {
        /// How far it is behind the time that ids carry already.
        by: Duration,
    },
    /// The clock is ahead of the window that the store of grants gives, by the store's own clock.
    ClockAhead {
        /// How far it is beyond the window.
        by: Duration,
    },
    /// The window is over, and a new one is being asked for.
    NoGrant,
    /// The window is over, and there is no new one.
    Grant(GrantError),
    /// The clock shows a time that the layout can't carry: before its epoch, or beyond its bits.
    OutOfTime,
    /// The business value does not fit into the layout's bits.
    Business {
        /// The value.
        value: u64,
        /// The first that does not fit.
        end: u64,
    },
    /// More ids at once than one call gives.
    TooMany {
        /// How many it gives.
        limit: u32,
    },
    /// The generator was closed.
    Closed,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ceiling => {
                f.write_str("the ids of this millisecond are used up; try again in the next one")
            }
            Self::ClockWentBack { by } => {
                write!(f, "the clock was set back by {by:?}; ids come again when it has caught up")
            }
            Self::ClockAhead { by } => write!(
                f,
                "the clock is {by:?} ahead of the granted window; compare it with that of the store of grants"
            ),
            Self::NoGrant => f.write_str("the worker number's window is over; a new one is being asked for"),
            Self::Grant(_) => f.write_str("the worker number's window is over, and there is no new one"),
            Self::OutOfTime => f.write_str("the clock shows a time that this layout can't carry"),
            Self::Business { value, end } => {
                write!(f, "the business value {value} does not fit: this layout ends at {end}")
            }
            Self::TooMany { limit } => write!(f, "one call reserves at most {limit} ids"),
            Self::Closed => f.write_str("the generator was closed"),
        }
    }
}

impl Error for IdError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Grant(cause) => Some(cause),
            _ => None,
        }
    }
}

impl From<GrantError> for IdError {
    fn from(error: GrantError) -> Self {
        Self::Grant(error)
    }
}
