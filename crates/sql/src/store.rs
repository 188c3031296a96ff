//! Lease mode: the store itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::machine::{self, Step};
use onlyonce_core::{
    Answer, AttemptId, Begin, Claim, ErrorKind, Fence, Over, RecordId, Revision, Settled, Settlement,
    Snapshot, Store, StoreError, Verdict,
};
use sqlx::Pool;

use crate::builder::Builder;
use crate::dialect::{Database, Inside};
use crate::fault::{self, When};
use crate::link::{Link, snapshot};
use crate::open_error::OpenError;
use crate::row;
use crate::waiting::jittered;
use crate::wakes::Wakes;

/// How often a record may move under a begin before it gives up.
const ROUNDS: u32 = 8;

/// Records in a table, shared by all processes that use it: a lease-mode [`Store`], and the ground of the same-transaction
/// mode ([`same_transaction`](Self::same_transaction)). Cheap to clone; clones share everything.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn open() -> Result<(), onlyonce_sql::OpenError> {
/// use onlyonce_core::Idempotency;
/// use onlyonce_sql::PostgresStore;
/// let store = PostgresStore::builder("postgres://localhost/shop").migrate().open().await?;
/// let once = Idempotency::new(store);
/// # Ok(()) }
/// ```
pub struct SqlStore<DB: Database> {
    pub(crate) inner: Arc<Inner<DB>>,
}

#[derive(Debug)]
pub(crate) struct Inner<DB: Database> {
    pub(crate) link: Link<DB>,
    pub(crate) wakes: Option<Wakes>,
}

impl<DB: Database> Clone for SqlStore<DB> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<DB: Database> SqlStore<DB> {
    /// Opens the store at this URL, with a pool of its own. The table must be there.
    ///
    /// # Errors
    /// See [`OpenError`], whose text says what to do.
    pub async fn open(url: impl Into<String>) -> Result<Self, OpenError> {
        Self::builder(url).open().await
    }

    /// Settings for a store at this URL, with a pool of its own. The URL may name the table, and its schema, as the builder does:
    /// `postgres://localhost/shop?table=calls&schema=once`.
    pub fn builder(url: impl Into<String>) -> Builder<DB> {
        Builder::url(url.into())
    }

    /// Settings for a store on a pool that you already have.
    pub fn from_pool(pool: Pool<DB>) -> Builder<DB> {
        Builder::pool(pool)
    }

    /// The pool that it uses.
    #[must_use]
    pub fn pool(&self) -> &Pool<DB> {
        &self.inner.link.pool
    }

    /// The largest answer that the server takes, in bytes, where that is a setting of the server (`max_allowed_packet` of MySQL): its
    /// record goes with it.
    #[must_use]
    pub fn max_answer_bytes(&self) -> Option<usize> {
        self.inner.link.largest.map(|largest| largest.saturating_sub(64 << 10))
    }

    /// Refuses an answer that does not fit into a message to the server, which would close the connection without a reason.
    pub(crate) fn check_size(&self, how: &Settlement) -> Result<(), StoreError> {
        let (Verdict::Completed(Answer(bytes)) | Verdict::Unknown(Answer(bytes))) = &how.verdict else {
            return Ok(());
        };
        match self.max_answer_bytes() {
            Some(most) if bytes.len() > most => {
                let why = format!(
                    "the answer has {} bytes, and the server takes {most}: store less, or raise its max_allowed_packet",
                    bytes.len()
                );
                Err(StoreError::new(ErrorKind::Rejected, DB::WORD, "settle", why))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn link(&self) -> &Link<DB> {
        &self.inner.link
    }

    /// Judges what is there, and replaces it if that is still so. `None` if it moved meanwhile.
    async fn take(&self, id: &RecordId, claim: &Claim) -> Result<Option<Begin>, StoreError> {
        let link = self.link();
        let Some(found) = link.find("begin", id).await? else { return Ok(None) };
        match machine::begin(Some(&found.record), claim, found.now) {
            Step::Keep(begun) => Ok(Some(begun)),
            Step::Write(next, begun) => {
                let arguments = row::take(&found, &next);
                let taken = link.run("begin", &link.statements.take, arguments).await?;
                Ok((taken.rows == 1).then_some(begun))
            }
        }
    }
}

impl<DB: Database> fmt::Debug for SqlStore<DB> {
    // Without the pool: its options hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SqlStore");
        shown
            .field("database", &DB::WORD)
            .field("table", &self.link().statements.table)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl<DB: Database> Store for SqlStore<DB> {
    async fn begin(&self, id: &RecordId, claim: &Claim) -> Result<Begin, StoreError> {
        let link = self.link();
        let insert = row::insert(id, claim);
        for round in 0..ROUNDS {
            if round > 1 {
                // Others were faster, twice: not all at once again.
                tokio::time::sleep(jittered(Duration::from_millis(1 << round))).await;
            }
            let inserted = link
                .in_turn("begin", async |connection| {
                    let arguments = link.timed(&link.statements.insert, insert.clone());
                    DB::insert(connection, &link.statements, arguments, Inside::Alone).await
                })
                .await?;
            if let Some(fence) = inserted {
                let fence = Fence(fence.unsigned_abs());
                return Ok(Begin::Acquired { fence, attempt: 1, over: Over::Nothing });
            }
            if let Some(begun) = self.take(id, claim).await? {
                return Ok(begun);
            }
        }
        Err(StoreError::new(ErrorKind::Busy, DB::WORD, "begin", "the record kept changing; retry"))
    }

    async fn renew(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        lease: Duration,
    ) -> Result<Settled, StoreError> {
        let link = self.link();
        let arguments = vec![
            row::span(lease),
            row::id(id),
            crate::value::Value::bytes(attempt.owner.as_bytes()),
            crate::value::Value::MaybeInt(attempt.fence.map(row::fence)),
        ];
        let renewed = link.run("renew", &link.statements.renew, arguments).await?;
        Ok(if renewed.rows == 1 { Settled::Applied } else { Settled::Lost })
    }

    async fn settle(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        how: &Settlement,
    ) -> Result<Settled, StoreError> {
        self.check_size(how)?;
        let link = self.link();
        let settled = link.run("settle", &link.statements.settle, row::settle(id, attempt, how)).await?;
        if settled.rows == 1 {
            return Ok(Settled::Applied);
        }
        // Somebody else's, or a repeat of ours.
        let Some(found) = link.find("settle", id).await? else { return Ok(Settled::Lost) };
        match machine::settle(Some(&found.record), attempt, how, found.now.moment) {
            Step::Keep(settled) => Ok(settled),
            Step::Write(..) => {
                // It became ours between the two: a begin of ours landed late. The engine repeats this.
                let moved = sqlx::Error::Io(std::io::Error::other("the record moved while it was settled"));
                Err(fault::during::<DB>("settle", When::Before, moved))
            }
        }
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        Ok(snapshot(self.link().find("get", id).await?))
    }

    async fn forget(&self, id: &RecordId, seen: Fence) -> Result<Settled, StoreError> {
        let link = self.link();
        let arguments = vec![row::id(id), crate::value::Value::Int(row::fence(seen))];
        let forgotten = link.run("forget", &link.statements.forget, arguments).await?;
        Ok(if forgotten.rows == 1 { Settled::Applied } else { Settled::Lost })
    }

    async fn sweep(&self, limit: u32) -> Result<u32, StoreError> {
        crate::sweep::batch(self.link(), limit).await
    }

    async fn changed(&self, id: &RecordId, seen: Revision, timeout: Duration) {
        // An error is the end of the wait, which is all there is to say.
        let _ = tokio::time::timeout(timeout, self.wait(id, seen)).await;
    }
}
