//! One attempt in a transaction, from its claim to its commit.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::{
    Answer, Attempt, AttemptId, Claim, ErrorKind, Fence, Finish, Loan, Over, Owner, Permit, RecordId, Return,
    Settled, Settlement, Snapshot, State, Store as _, StoreError, Unstoppable, Verdict,
};
use sqlx::Connection as _;
use tokio::sync::OwnedSemaphorePermit;

use super::Inner;
use super::claim::{Ask, Claimed, claim};
use super::commit::{Commit, settle_and_commit};
use super::lane::Leader;
use super::transaction::Transaction;
use crate::clock;
use crate::crash::CrashPoint;
use crate::dialect::Database;
use crate::fault::{self, When};
use crate::late;
use crate::row;
use crate::waiting::jittered;

/// How long a commit is waited for before it is looked for.
const COMMIT_PATIENCE: Duration = Duration::from_secs(20);
/// How long a commit whose reply was lost is looked for, while the caller waits.
const RESOLVE_PATIENCE: Duration = Duration::from_secs(20);
/// How long one such look waits for the transaction in question to end.
const RESOLVE_WAIT: Duration = Duration::from_secs(1);

/// A claim in a transaction that the handler may borrow.
pub(super) struct TxAttempt<DB: Database> {
    state: Option<Holding<DB>>,
    permit: Permit,
    over: Over,
    evidence: Answer,
    refused: bool,
}

/// What ends with the attempt.
struct Holding<DB: Database> {
    inner: Arc<Inner<DB>>,
    id: RecordId,
    claim: Claim,
    fence: Fence,
    number: u32,
    loan: Loan,
    leader: Leader,
    _place: OwnedSemaphorePermit,
}

/// A record that was claimed in a transaction.
pub(super) struct Acquired<DB: Database> {
    pub(super) transaction: Transaction<DB>,
    pub(super) claim: Claim,
    pub(super) fence: Fence,
    pub(super) number: u32,
    pub(super) over: Over,
    pub(super) evidence: Answer,
    pub(super) place: OwnedSemaphorePermit,
}

impl<DB: Database> TxAttempt<DB> {
    pub(super) fn new(inner: Arc<Inner<DB>>, id: RecordId, acquired: Acquired<DB>, leader: Leader) -> Self {
        let Acquired { transaction, claim, fence, number, over, evidence, place } = acquired;
        let loan = Loan::new(transaction);
        let permit = Permit::lending(id, fence, number, loan.clone());
        let holding = Holding { inner, id, claim, fence, number, loan, leader, _place: place };
        holding
            .leader
            .runs(holding.snapshot(State::Running { lease_left: holding.claim.lease }, Duration::ZERO));
        Self { state: Some(holding), permit, over, evidence, refused: false }
    }
}

impl<DB: Database> fmt::Debug for TxAttempt<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxAttempt").field("permit", &self.permit).finish_non_exhaustive()
    }
}

#[async_trait]
impl<DB: Database> Attempt for TxAttempt<DB> {
    fn permit(&self) -> &Permit {
        &self.permit
    }

    fn over(&self) -> Over {
        self.over
    }

    fn evidence(&self) -> Answer {
        self.evidence.clone()
    }

    fn polled(&mut self) {
        // Nothing is in doubt here, whatever was polled.
    }

    fn refused(&mut self) {
        self.refused = true;
    }

    async fn settle(mut self: Box<Self>, how: Settlement) -> Result<Finish, StoreError> {
        let Some(holding) = self.state.take() else { return Ok(Finish::Lost(None)) };
        let (refused, how) = (self.refused, holding.fitting(how));
        // A commit that is under way is finished, whoever waits for it.
        Unstoppable::new(holding.end(how, refused), tracing::Span::current()).await
    }
}

impl<DB: Database> Drop for TxAttempt<DB> {
    fn drop(&mut self) {
        if let Some(holding) = self.state.take() {
            // What is out rolls back when it comes too late.
            if let Return::Here(transaction) = holding.loan.close::<Transaction<DB>>() {
                transaction.abandon();
            }
        }
    }
}

impl<DB: Database> Holding<DB> {
    /// What the server takes of a settlement: what was done stays done, if need be without its answer.
    fn fitting(&self, how: Settlement) -> Settlement {
        let Err(error) = self.inner.store.check_size(&how) else { return how };
        tracing::error!(
            record = %self.id, error = &error as &dyn std::error::Error,
            "the record is kept without its answer, and duplicates are refused"
        );
        how.without_answer().unwrap_or(how)
    }

    async fn end(self, how: Settlement, refused: bool) -> Result<Finish, StoreError> {
        CrashPoint::Handled.pass();
        let mut transaction = match self.loan.close::<Transaction<DB>>() {
            Return::Here(transaction) => transaction,
            Return::Out => {
                let why =
                    "the Tx outlived its handler, so all is rolled back; drop it before the handler ends";
                return Err(StoreError::new(ErrorKind::Rejected, DB::WORD, "commit", why));
            }
        };
        if let Err(error) = transaction.level().await {
            transaction.leave().await;
            return Err(fault::during::<DB>("commit", When::Before, error));
        }
        match how.verdict {
            Verdict::Completed(_) if refused => self.refuse(transaction, how).await,
            Verdict::Completed(_) => self.commit(transaction, how).await,
            Verdict::Released | Verdict::Unknown(_) => {
                // Before the caller hears of it, so that its next try does not meet this one.
                transaction.leave().await;
                Ok(Finish::Applied)
            }
        }
    }

    /// The business said no: what it did is undone, what it said is kept, under the same rule as any claim.
    async fn refuse(self, transaction: Transaction<DB>, how: Settlement) -> Result<Finish, StoreError> {
        transaction.leave().await;
        CrashPoint::Refused.pass();
        let (claim, claimed) = self.claim_again(RESOLVE_WAIT).await;
        match claimed? {
            Claimed::Acquired { transaction, fence, attempt, .. } => {
                let again = Self { fence, claim, number: attempt, ..self };
                again.commit(transaction, how).await
            }
            // The handler committed its claim itself: what was done before stays, and so does what it said.
            Claimed::Taken(Snapshot { fence, state: State::Running { .. }, .. }) if fence == self.fence => {
                self.keep(how).await
            }
            Claimed::Taken(snapshot) => Ok(self.lost(snapshot)),
            Claimed::Held => {
                let why = "another attempt holds the record, so the refusal was not kept";
                Err(StoreError::new(ErrorKind::Unavailable, DB::WORD, "commit", why))
            }
        }
    }

    /// Settles a record that was committed already.
    async fn keep(self, how: Settlement) -> Result<Finish, StoreError> {
        let attempt = AttemptId { owner: self.claim.owner, fence: Some(self.fence) };
        match self.inner.store.settle(&self.id, &attempt, &how).await? {
            Settled::Applied => Ok(self.applied(how)),
            Settled::Lost => Ok(Finish::Lost(self.inner.store.get(&self.id).await?)),
        }
    }

    async fn commit(self, mut transaction: Transaction<DB>, how: Settlement) -> Result<Finish, StoreError> {
        if !transaction.is_in_transaction() {
            transaction.leave().await;
            return Err(no_claim::<DB>());
        }
        let attempt = AttemptId { owner: self.claim.owner, fence: Some(self.fence) };
        let (inner, id, asked) = (Arc::clone(&self.inner), self.id, how.clone());
        let sent = Unstoppable::new(
            async move {
                let link = inner.store.link();
                let commit = async {
                    // The clock may have been set while the handler ran.
                    let note = clock::write::<DB>(&mut transaction, &link.table, &link.time).await;
                    let note = note.map_err(Commit::Refused)?;
                    let arguments = link.timed(&link.statements.settle, row::settle(&id, &attempt, &asked));
                    settle_and_commit(transaction, &link.statements, arguments).await?;
                    note.iter().for_each(|note| link.time.noted(note));
                    Ok(())
                };
                // One that nobody answers gives its connection back, so that there is one to look for it with.
                tokio::time::timeout(COMMIT_PATIENCE, commit)
                    .await
                    .unwrap_or_else(|_| Err(Commit::Unheard(late::error(COMMIT_PATIENCE))))
            },
            tracing::Span::current(),
        );
        match sent.await {
            Ok(()) => {}
            Err(Commit::NoClaim) => return Err(no_claim::<DB>()),
            Err(Commit::Refused(error)) => return Err(fault::during::<DB>("commit", When::Before, error)),
            Err(Commit::Unheard(error)) => match self.resolve(error).await? {
                Finish::Applied => {}
                other => return Ok(other),
            },
        }
        CrashPoint::Committed.pass();
        Ok(self.applied(how))
    }

    /// Tells those who wait behind.
    fn applied(&self, how: Settlement) -> Finish {
        if let Verdict::Completed(answer) = how.verdict {
            self.leader.ended(Some(self.snapshot(State::Completed(answer), how.retain)));
        }
        Finish::Applied
    }

    /// Nobody heard whether it was committed: the same claim tells, because it waits for whoever holds the record.
    async fn resolve(&self, error: sqlx::Error) -> Result<Finish, StoreError> {
        tracing::warn!(record = %self.id, error = &error as &dyn std::error::Error, "the reply to a commit was lost; looking what became of it");
        let look = async {
            let mut pause = Duration::from_millis(20);
            loop {
                match self.claim_again(RESOLVE_WAIT).await.1 {
                    Ok(Claimed::Acquired { transaction, .. }) => {
                        transaction.leave().await;
                        return None;
                    }
                    Ok(Claimed::Taken(snapshot)) => return Some(snapshot),
                    Ok(Claimed::Held) | Err(_) => {}
                }
                tokio::time::sleep(jittered(pause)).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
        };
        match tokio::time::timeout(RESOLVE_PATIENCE, look).await {
            Ok(Some(snapshot)) if snapshot.fence == self.fence => Ok(Finish::Applied),
            Ok(Some(snapshot)) => Ok(self.lost(snapshot)),
            Ok(None) => Err(StoreError::unavailable(DB::WORD, "commit", error)),
            Err(_) => Err(StoreError::ambiguous(DB::WORD, "commit", error)),
        }
    }

    /// Claims the record once more, as somebody else: as the same, what was committed would look like a repeat.
    async fn claim_again(&self, wait: Duration) -> (Claim, Result<Claimed<DB>, StoreError>) {
        let again = Claim { owner: Owner::random(), ..self.claim.clone() };
        let (inner, id) = (Arc::clone(&self.inner), self.id);
        let work = async move {
            let ask = Ask { id: &id, claim: &again, wait, idle: inner.idle };
            let claimed = claim(inner.store.link(), &ask).await;
            (again, claimed)
        };
        Unstoppable::new(work, tracing::Span::current()).await
    }

    fn lost(&self, snapshot: Snapshot) -> Finish {
        self.leader.ended(Some(snapshot.clone()));
        Finish::Lost(Some(snapshot))
    }

    fn snapshot(&self, state: State, expires_in: Duration) -> Snapshot {
        let expires_in = if expires_in.is_zero() { self.claim.retain_unsettled } else { expires_in };
        Snapshot {
            state,
            fence: self.fence,
            fingerprint: self.claim.fingerprint,
            attempts: self.number,
            age: Duration::ZERO,
            expires_in,
            label: self.claim.label.clone(),
        }
    }
}

fn no_claim<DB: Database>() -> StoreError {
    let why = "the transaction ended before its handler answered (by a ROLLBACK of its own, or by a deadlock after which it went \
               on), so its answer can't be kept";
    StoreError::new(ErrorKind::Rejected, DB::WORD, "commit", why)
}
