//! Why a store could not be opened.

use std::error::Error;
use std::fmt;

use onlyonce_core::InputError;

use crate::concern::Concern;
use crate::late;

/// Why a store could not be opened, and what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The name of the table or its schema can't be used.
    Name(InputError),
    /// The URL is not one of this database.
    Url(String),
    /// The database was not reached, or did not let us in.
    Connect(sqlx::Error),
    /// This user may not read the table.
    Forbidden {
        /// The table.
        table: String,
        /// What the database said.
        cause: sqlx::Error,
    },
    /// The table is not there.
    NotMigrated {
        /// The table.
        table: String,
        /// The folder of the SQL files that make it.
        files: String,
    },
    /// The table was made by an older release.
    OlderSchema {
        /// The table.
        table: String,
        /// The migrations that are missing.
        missing: Vec<&'static str>,
    },
    /// The table was made by a newer release.
    NewerSchema {
        /// The table.
        table: String,
    },
    /// The server, or its settings, can't be used.
    Unusable(String),
    /// Refused by [`Builder::strict`](crate::Builder::strict).
    Strict(Concern),
    /// A migration failed.
    Migrate(sqlx::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(why) => write!(f, "{why}"),
            Self::Url(why) => f.write_str(why),
            Self::Connect(_) => f.write_str(
                "the database was not reached, or did not let us in: is it running, and are address, user and password right? \
                 (SQLite: is the file one of its own, in a directory that is there?)",
            ),
            Self::Forbidden { table, .. } => write!(
                f,
                "this user may not read the table {table}: grant it SELECT, INSERT, UPDATE and DELETE there, and SELECT on \
                 {table}_migrations"
            ),
            Self::NotMigrated { table, files } => write!(
                f,
                "there is no table {table}: open the store with .migrate(), or apply the SQL files in {files}"
            ),
            Self::OlderSchema { table, missing } => write!(
                f,
                "the table {table} is of an older release: open the store with .migrate(), or apply {}",
                missing.join(", ")
            ),
            Self::NewerSchema { table } => write!(
                f,
                "the table {table} is of a newer release: update this program before it writes to it"
            ),
            Self::Unusable(why) => write!(f, "the database can't be used: {why}"),
            Self::Strict(concern) => write!(f, "refused, because the store is strict: {concern}"),
            Self::Migrate(cause) => match late::after(cause) {
                Some(span) => write!(
                    f,
                    "the migration did not end within {span:?}, which is as long as it is waited for: it may still go on in the server, \
                     or wait there for a transaction that holds the table. Look what the server does, and start again when that \
                     has ended, or apply the SQL files yourself, which has no limit"
                ),
                None => f.write_str(
                    "the migration failed: the database and the schema must be there, and the user needs the right to create \
                     tables, or somebody who has it applies the SQL files",
                ),
            },
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Connect(cause) | Self::Migrate(cause) | Self::Forbidden { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_migration_that_was_not_waited_for_is_told_apart_from_one_that_failed() {
        let late = OpenError::Migrate(late::error(Duration::from_secs(300))).to_string();
        assert!(late.contains("may still go on") && late.contains("300s"), "{late}");
        assert!(late.contains("start again") && !late.contains("right to create"), "{late}");
        let failed = OpenError::Migrate(sqlx::Error::PoolClosed).to_string();
        assert!(failed.contains("right to create"), "{failed}");
    }
}
