//! What a failure left behind, and what to do about it.

use std::error::Error;
use std::fmt;

use onlyonce_core::{ErrorKind, StoreError};

use crate::dialect::{Dialect, Meaning};

/// When a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Nothing was sent yet.
    Before,
    /// It may have been done.
    During,
}

/// A failure with a hint; the cause is the driver's error.
#[derive(Debug)]
pub(crate) struct Fault {
    hint: String,
    cause: sqlx::Error,
}

impl Fault {
    /// A row that the driver can't read as what it should be.
    pub(crate) fn unread(cause: sqlx::Error) -> Self {
        Self { hint: "the row has other columns than the table of this release".into(), cause }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hint)
    }
}

impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

/// The error of a call that failed.
pub(crate) fn during<DB: Dialect>(call: &'static str, when: When, cause: sqlx::Error) -> StoreError {
    let meaning = DB::meaning(&cause);
    let kind = match (&cause, meaning) {
        (sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed, _) => ErrorKind::Unavailable,
        // A server that was writable when the call began will be so again, or another one in its place: an end is not given up for it.
        (_, Meaning::NoTable | Meaning::ReadOnly) if call == "settle" => ErrorKind::Unavailable,
        (_, Meaning::NoTable | Meaning::ReadOnly | Meaning::TooLarge | Meaning::Constraint) => {
            ErrorKind::Rejected
        }
        (_, Meaning::Locked | Meaning::GaveWay | Meaning::Duplicate) => ErrorKind::Unavailable,
        (sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_), _) => ErrorKind::Corrupt,
        // What the server says no to, it has not done. Whatever else is said may come from a proxy that lost its server on the way.
        (_, Meaning::Refused) => ErrorKind::Unavailable,
        (_, Meaning::Gone | Meaning::Stopped | Meaning::Other) if when == When::Before => {
            ErrorKind::Unavailable
        }
        (_, Meaning::Gone | Meaning::Stopped | Meaning::Other) => ErrorKind::Ambiguous,
    };
    let hint = hint::<DB>(&cause, meaning);
    StoreError::new(kind, DB::WORD, call, Fault { hint, cause })
}

/// Whether the transaction was undone in favour of another one, so that it may be repeated.
pub(crate) fn gave_way<DB: Dialect>(error: &StoreError) -> bool {
    let fault = error.source().and_then(|source| source.downcast_ref::<Fault>());
    fault.is_some_and(|fault| DB::meaning(&fault.cause) == Meaning::GaveWay)
}

fn hint<DB: Dialect>(cause: &sqlx::Error, meaning: Meaning) -> String {
    match (cause, meaning) {
        (sqlx::Error::PoolTimedOut, _) => {
            "no connection within the time of the pool: the database is down, or all connections are in use; then allow \
             the pool more (max_connections), or keep transactions shorter"
                .into()
        }
        (sqlx::Error::PoolClosed, _) => "the pool was closed".into(),
        (_, Meaning::NoTable) => format!(
            "the table of the records is not there: call migrate(), or apply migrations/{}/*.sql",
            DB::WORD
        ),
        (_, Meaning::ReadOnly) if DB::WORD == "sqlite" => {
            "this process may not write the file of the database: open it for writing (not mode=ro), and let the user of the \
             process write it and its directory"
                .into()
        }
        (_, Meaning::ReadOnly) => {
            "this user may not write the table of the records: grant it SELECT, INSERT, UPDATE and DELETE".into()
        }
        (_, Meaning::Locked) if DB::WORD == "sqlite" => {
            "another connection holds the write lock; a handler that writes through the pool instead of its Tx waits \
             for itself"
                .into()
        }
        (_, Meaning::Locked) => "others hold the row for longer than we wait".into(),
        (_, Meaning::GaveWay) => "the transaction had to give way to another one; it may be repeated".into(),
        (_, Meaning::Stopped) => "somebody stopped the statement; it may be repeated".into(),
        (_, Meaning::TooLarge) => {
            "the answer is larger than the server takes: store less, or raise its limit (max_allowed_packet)".into()
        }
        (_, Meaning::Constraint) => {
            "the transaction broke a rule of the database and was rolled back as a whole".into()
        }
        _ => "the database failed".into(),
    }
}

/// A record that can't be read.
#[derive(Debug)]
pub(crate) struct Damaged(pub(crate) &'static str);

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the record is damaged: {}", self.0)
    }
}

impl Error for Damaged {}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use std::borrow::Cow;

    use sqlx::Postgres;
    use sqlx::error::{DatabaseError, ErrorKind as Violation};

    use super::*;

    /// What a server, or whoever stands before it, says with this code.
    #[derive(Debug)]
    struct Said(&'static str);

    impl fmt::Display for Said {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Said {}

    impl DatabaseError for Said {
        fn message(&self) -> &str {
            self.0
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(self.0.into())
        }

        fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> Violation {
            Violation::Other
        }
    }

    fn kind(call: &'static str, when: When, code: &'static str) -> ErrorKind {
        during::<Postgres>(call, when, sqlx::Error::Database(Box::new(Said(code)))).kind()
    }

    #[test]
    fn what_is_said_of_a_lost_server_may_have_happened() {
        // Of pgcat, of pgbouncer, of a server that ends, and what nobody knows.
        for code in ["58000", "08P01", "08006", "57P01", "57P02", "57P03", "40003", "XX000", "ZZ999"] {
            assert_eq!(kind("begin", When::During, code), ErrorKind::Ambiguous, "{code}");
            assert_eq!(kind("begin", When::Before, code), ErrorKind::Unavailable, "{code}");
        }
    }

    #[test]
    fn what_a_server_says_no_to_has_not_happened() {
        for code in ["0A000", "22001", "25001", "28P01", "3D000", "42601", "42703", "53100", "54001", "26000"]
        {
            assert_eq!(kind("settle", When::During, code), ErrorKind::Unavailable, "{code}");
        }
        for code in ["23502", "42P01", "42501", "25006"] {
            assert_eq!(kind("begin", When::During, code), ErrorKind::Rejected, "{code}");
        }
    }
}
