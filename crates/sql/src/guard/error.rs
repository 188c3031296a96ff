//! What went wrong, and what to do next.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use onlyonce_core::InputError;

/// A guard that could not say an outcome.
#[derive(Debug)]
pub struct GuardError {
    guard: &'static str,
    kind: GuardErrorKind,
    says: Cow<'static, str>,
    source: Option<Box<sqlx::Error>>,
}

/// What to do about a [`GuardError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GuardErrorKind {
    /// The call itself is wrong; nothing was sent.
    Input,
    /// A table or column is missing: migrate.
    MissingTable,
    /// The database has undone the transaction (a deadlock, a serialization failure): roll back, and run it again from its
    /// start. Nothing of it has happened.
    RolledBack,
    /// A row stayed locked for longer than the database allows: roll back, and try again later.
    LockTimeout,
    /// The user or the database may only read.
    ReadOnly,
    /// What is stored can't be understood, such as a state that its machine does not have.
    Data,
    /// Anything else, such as a violation of another constraint or a lost connection; see the source.
    Database,
}

/// What a failed statement left behind; judged by each dialect.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// A unique constraint, by its name if the database says so.
    Duplicate(Option<String>),
    RolledBack,
    LockTimeout,
    MissingTable,
    /// `ON CONFLICT` names columns that no unique index is over.
    NoSuchConstraint,
    NoTransaction,
    ReadOnly,
    Other,
}

impl GuardError {
    pub(super) fn input(guard: &'static str, says: impl Into<Cow<'static, str>>) -> Self {
        Self { guard, kind: GuardErrorKind::Input, says: says.into(), source: None }
    }

    pub(super) fn data(guard: &'static str, says: impl Into<Cow<'static, str>>) -> Self {
        Self { guard, kind: GuardErrorKind::Data, says: says.into(), source: None }
    }

    pub(super) fn database(guard: &'static str, fault: Fault, source: sqlx::Error) -> Self {
        let (kind, says) = match fault {
            Fault::RolledBack => (
                GuardErrorKind::RolledBack,
                "the database has undone the transaction because it met another one; roll back and run it again from its start",
            ),
            Fault::LockTimeout => (
                GuardErrorKind::LockTimeout,
                "a row stayed locked by another transaction for longer than the database allows; roll back and try again later",
            ),
            Fault::MissingTable => (
                GuardErrorKind::MissingTable,
                "a table or column is missing; those of onlyonce are created by `onlyonce::sql::guard::migrate`",
            ),
            Fault::NoSuchConstraint => (
                GuardErrorKind::Input,
                "no unique index is over exactly the columns that were given; create one, or name its columns",
            ),
            Fault::NoTransaction => (
                GuardErrorKind::Input,
                "a lock lives as long as its transaction, and there is none; begin one and pass it",
            ),
            Fault::ReadOnly => (GuardErrorKind::ReadOnly, "this user or database may only read"),
            Fault::Duplicate(_) => (
                GuardErrorKind::Database,
                "another unique constraint than the one that was named is violated",
            ),
            Fault::Other => (GuardErrorKind::Database, "the statement failed"),
        };
        Self { guard, kind, says: says.into(), source: Some(Box::new(source)) }
    }

    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> GuardErrorKind {
        self.kind
    }

    /// Whether the whole transaction, rolled back and run again from its start, may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, GuardErrorKind::RolledBack | GuardErrorKind::LockTimeout)
    }
}

impl fmt::Display for GuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guard::{}: {}", self.guard, self.says)
    }
}

impl Error for GuardError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<InputError> for GuardError {
    fn from(error: InputError) -> Self {
        Self::input("input", error.to_string())
    }
}
