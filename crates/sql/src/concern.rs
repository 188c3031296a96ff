//! What a server might lose.

use std::fmt;

/// What would weaken the promise on this server. Reported as a warning, or refused by [`Builder::strict`](crate::Builder::strict).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Concern {
    /// What was committed may be lost when the server or its machine crashes.
    NotDurable(&'static str),
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDurable(why) => {
                write!(f, "{why}: a crash of the server can lose records that were committed")
            }
        }
    }
}
