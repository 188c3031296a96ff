//! The dedup table: a row that says that something was done.

use super::error::GuardError;
use super::operation::OperationId;
use super::session::Session;

/// Whether an operation is the first of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dedup {
    /// Nobody did it before: do it now, in the same transaction.
    First,
    /// It was done, and committed.
    Duplicate,
}

/// An entry of the dedup table; see [`dedup`].
#[derive(Debug)]
#[must_use = "nothing is recorded before `run`"]
pub struct DedupEntry(OperationId);

/// Records an operation in a table of the same database and the same transaction: for what may happen only once, but leaves no
/// row that a unique index could be on, such as the work for a message.
///
/// Two at the same time: the second waits until the first has committed, and is a duplicate; or was rolled back, and is first.
///
/// ```
/// # use onlyonce_sql::guard::*;
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
/// # migrate(&mut pool.acquire().await?).await?;
/// let message = OperationId::new("send-receipt", "message-17")?;
/// let mut tx = pool.begin().await?;
/// if dedup(message).run(&mut tx).await? == Dedup::First {
///     // the business, in the same transaction
/// }
/// tx.commit().await?;
/// # Ok(()) }
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// ```
pub fn dedup(operation: OperationId) -> DedupEntry {
    DedupEntry(operation)
}

impl DedupEntry {
    /// Records it, if it is the first.
    ///
    /// # Errors
    /// If the statement fails. [`RolledBack`](super::GuardErrorKind::RolledBack) is ordinary on MySQL when several waited for one
    /// that was rolled back.
    pub async fn run<S: Session>(self, session: &mut S) -> Result<Dedup, GuardError> {
        let first = self.0.record::<S::Database>("dedup", session.connection()).await?;
        Ok(if first { Dedup::First } else { Dedup::Duplicate })
    }
}
