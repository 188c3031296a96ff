//! What can fail: a store, or the input of a caller. Outcomes such as "taken" are not errors.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// What a failed store call leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// It did not happen. Trying again later may work.
    Unavailable,
    /// It did not happen, and not because of the store: the engine is closing, or has too much to do.
    Busy,
    /// It may or may not have happened. Repeating the same call is safe and tells.
    Ambiguous,
    /// What is stored can't be read. Nothing may run on the strength of it.
    Corrupt,
    /// The store understood and refuses for good: repeating the same call is pointless.
    Rejected,
}

/// A store call that failed: which store, which call, what it means, and the cause.
///
/// `Display` does not repeat the cause; walk [`Error::source`] for it.
///
/// ```
/// use onlyonce_core::{ErrorKind, StoreError};
/// let error = StoreError::unavailable("redis", "begin", std::io::Error::other("connection refused"));
/// assert_eq!(error.kind(), ErrorKind::Unavailable);
/// assert_eq!(error.to_string(), "redis: begin did not happen: the store is unavailable");
/// ```
#[derive(Debug)]
pub struct StoreError {
    kind: ErrorKind,
    backend: &'static str,
    call: &'static str,
    source: Box<dyn Error + Send + Sync>,
}

impl StoreError {
    /// A failed call of the given kind.
    pub fn new(
        kind: ErrorKind,
        backend: &'static str,
        call: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind, backend, call, source: source.into() }
    }

    /// The call did not happen.
    pub fn unavailable(
        backend: &'static str,
        call: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::new(ErrorKind::Unavailable, backend, call, source)
    }

    /// The call may have happened.
    pub fn ambiguous(
        backend: &'static str,
        call: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::new(ErrorKind::Ambiguous, backend, call, source)
    }

    /// The stored bytes can't be read.
    pub fn corrupt(
        backend: &'static str,
        call: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::new(ErrorKind::Corrupt, backend, call, source)
    }

    /// What the failure leaves behind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meaning = match self.kind {
            ErrorKind::Unavailable => "did not happen: the store is unavailable",
            ErrorKind::Busy => "did not happen: this instance takes no calls right now",
            ErrorKind::Ambiguous => "may or may not have happened: the store did not answer",
            ErrorKind::Corrupt => "found a record that can't be read",
            ErrorKind::Rejected => "was refused by the store",
        };
        write!(f, "{}: {} {meaning}", self.backend, self.call)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// Input that can't be used: what is wrong with it, and what to send instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputError(Cow<'static, str>);

impl InputError {
    /// An error with this explanation.
    pub fn new(explanation: impl Into<Cow<'static, str>>) -> Self {
        Self(explanation.into())
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for InputError {}
