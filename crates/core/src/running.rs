//! A call between its start and its end, as the adapters hold it.

use std::sync::Arc;
use std::time::Duration;

use crate::classify::Class;
use crate::error::{ErrorKind, StoreError};
use crate::lease::Permit;
use crate::lease_runner::LeaseAttempt;
use crate::policy::{Decision, Mode, OnLapse, decide};
use crate::record::{Answer, Fence, Label, Over, Settlement, Snapshot, Verdict};
use crate::refusal::Refusal;
use crate::runner::{Attempt, Finish};
use crate::settings::{Intent, Settings};

/// How long a caller is told to wait before it asks again about a call that runs.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a start led to.
#[derive(Debug)]
#[must_use = "an attempt that is dropped is settled in the background"]
pub enum Started {
    /// Run the handler.
    Run(Running),
    /// An earlier attempt ended without a word: ask whether it happened.
    Ask(Asking),
    /// Do not run: this is what came before.
    Prior(Prior),
}

/// What is left of a start when no question is open.
#[derive(Debug)]
#[must_use = "an attempt that is dropped is settled in the background"]
pub enum Cleared {
    /// Run the handler.
    Run(Running),
    /// Do not run: this is what came before.
    Prior(Prior),
}

/// What came before this call.
#[derive(Debug)]
pub enum Prior {
    /// Give this answer.
    Replay(Replay),
    /// There is no answer to give.
    Refused(Refusal),
}

/// A stored answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The bytes, as they were stored.
    pub answer: Answer,
    /// The fence of the attempt that made it.
    pub fence: Fence,
    /// How long it will still be kept.
    pub expires_in: Duration,
}

impl Prior {
    /// Judges a record that this call did not begin.
    pub(crate) fn judge(snapshot: &Snapshot, intent: &Intent) -> Self {
        Self::Refused(match decide(snapshot, &intent.fingerprint, intent.settings.rules()) {
            Decision::Replay(answer) => {
                return Self::Replay(Replay {
                    answer,
                    fence: snapshot.fence,
                    expires_in: snapshot.expires_in,
                });
            }
            Decision::Duplicate => Refusal::Duplicate,
            // What may be begun again was not, because it kept changing hands: that is as good as running.
            Decision::InProgress { .. } | Decision::TakeOver(_) | Decision::Again => {
                Refusal::InProgress { retry_after: RETRY_AFTER }
            }
            Decision::Mismatch => Refusal::Mismatch,
            Decision::Unknown { evidence, ask_in } => Refusal::Unknown { evidence, retry_after: ask_in },
            Decision::Unreadable => Refusal::Unreadable,
        })
    }
}

/// How ending a call went.
#[derive(Debug)]
pub enum Finished {
    /// The record says so now.
    Stored,
    /// The store did not take it yet; that goes on in the background. The caller may have its answer, unstored.
    Pending,
    /// Somebody else has ended this call meanwhile: theirs is the answer.
    Superseded(Prior),
}

impl Finished {
    fn of(finish: Result<Finish, StoreError>, intent: &Intent) -> Result<Self, StoreError> {
        Ok(match finish {
            Ok(Finish::Applied) => Self::Stored,
            Ok(Finish::Pending) => Self::Pending,
            Ok(Finish::Lost(Some(snapshot))) => Self::Superseded(Prior::judge(&snapshot, intent)),
            Ok(Finish::Lost(None)) => Self::Superseded(Prior::Refused(Refusal::unknown())),
            // Not known yet, and the next call with this key will find out.
            Err(error) if error.kind() == ErrorKind::Ambiguous => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "whether the call was committed is not known yet"
                );
                Self::Superseded(Prior::Refused(Refusal::InProgress { retry_after: RETRY_AFTER }))
            }
            Err(error) => return Err(error),
        })
    }
}

/// A call that may run.
///
/// Dropping it settles it in the background: as released if [`begun`](Self::begun) was never called, else as unknown.
#[derive(Debug)]
#[must_use = "an attempt that is dropped is settled in the background"]
pub struct Running {
    attempt: Held,
    intent: Arc<Intent>,
}

/// An attempt of this engine, which needs no box, or one of a runner from elsewhere.
#[derive(Debug)]
pub(crate) enum Held {
    Leased(LeaseAttempt),
    Other(Box<dyn Attempt>),
}

impl Held {
    fn permit(&self) -> &Permit {
        match self {
            Self::Leased(attempt) => attempt.permit(),
            Self::Other(attempt) => attempt.permit(),
        }
    }

    fn over(&self) -> Over {
        match self {
            Self::Leased(attempt) => attempt.over(),
            Self::Other(attempt) => attempt.over(),
        }
    }

    fn evidence(&self) -> Answer {
        match self {
            Self::Leased(attempt) => attempt.evidence(),
            Self::Other(attempt) => attempt.evidence(),
        }
    }

    fn polled(&mut self) {
        match self {
            Self::Leased(attempt) => attempt.polled(),
            Self::Other(attempt) => attempt.polled(),
        }
    }

    fn refused(&mut self) {
        // Under a lease the effect does not end with its record: there is nothing to undo.
        if let Self::Other(attempt) = self {
            attempt.refused();
        }
    }
}

impl Running {
    pub(crate) fn new(attempt: Held, intent: Arc<Intent>) -> Self {
        Self { attempt, intent }
    }

    /// What the handler may know of this attempt.
    #[must_use]
    pub fn permit(&self) -> &Permit {
        self.attempt.permit()
    }

    /// The settings of this call.
    #[must_use]
    pub fn settings(&self) -> &Arc<Settings> {
        &self.intent.settings
    }

    /// What this attempt was begun over.
    #[must_use]
    pub fn over(&self) -> Over {
        self.attempt.over()
    }

    pub(crate) fn label(&self) -> &Label {
        &self.intent.label
    }

    /// From now on the effect may have happened. Call it right before the handler.
    pub fn begun(&mut self) {
        self.attempt.polled();
    }

    /// Whether the effect and its record end together, so that nothing is ever in doubt: what is not kept is undone.
    #[must_use]
    pub fn is_atomic(&self) -> bool {
        self.permit().loan().is_some()
    }

    /// The answer is a refusal by the business: it is kept, and where [`is_atomic`](Self::is_atomic), whatever else the
    /// handler did is undone. Call it before [`end`](Self::end).
    pub fn refused(&mut self) {
        self.attempt.refused();
    }

    /// Ends the call: [`Keep`](Class::Keep) with `record` as the answer, [`Release`](Class::Release), or
    /// [`Unknown`](Class::Unknown) with `record` as what was seen, for the person who decides.
    ///
    /// A record that is too large, or an answer that the mode does not want, is not stored: then duplicates are refused.
    ///
    /// # Errors
    /// The answer must not go out: the effect was rolled back with it.
    ///
    /// # Cancel safety
    /// Dropped half-way, it is finished in the background.
    pub fn end(
        self,
        class: Class,
        record: Answer,
    ) -> impl Future<Output = Result<Finished, StoreError>> + Send {
        let Self { attempt, intent } = self;
        let how = settlement(&intent.settings, class, record);
        // Not an async function: that would hold its arguments twice, in the memory of every call.
        async move {
            let finish = match attempt {
                Held::Leased(attempt) => Ok(attempt.settle(how).await),
                Held::Other(attempt) => attempt.settle(how).await,
            };
            Finished::of(finish, &intent)
        }
    }

    /// It happened, and this is the answer: [`end`](Self::end) as kept.
    ///
    /// # Errors
    /// As [`end`](Self::end).
    pub async fn complete(self, answer: Answer) -> Result<Finished, StoreError> {
        self.end(Class::Keep, answer).await
    }

    /// It did not happen, and the same call may run again: [`end`](Self::end) as released.
    ///
    /// # Errors
    /// As [`end`](Self::end).
    pub async fn release(self) -> Result<Finished, StoreError> {
        self.end(Class::Release, Answer::none()).await
    }

    /// Nobody can know whether it happened: [`end`](Self::end) as unknown.
    ///
    /// # Errors
    /// As [`end`](Self::end).
    pub async fn unknown(self, evidence: Answer) -> Result<Finished, StoreError> {
        self.end(Class::Unknown, evidence).await
    }

    /// Ends a call that ran nothing. What it took over may have run, unless that was asked about.
    pub(crate) async fn give_back(self) -> Result<Finished, StoreError> {
        if self.over() == Over::Lapsed && !self.must_ask() {
            let evidence = self.attempt.evidence();
            return self.unknown(evidence).await;
        }
        self.release().await
    }

    pub(crate) fn must_ask(&self) -> bool {
        self.attempt.over() == Over::Lapsed && matches!(self.intent.settings.on_lapse, OnLapse::Ask { .. })
    }
}

/// What is written when a call ends.
fn settlement(settings: &Settings, class: Class, record: Answer) -> Settlement {
    let bytes = record.0.len();
    let too_large = bytes > settings.max_answer;
    if too_large {
        tracing::warn!(bytes, limit = settings.max_answer, "the answer is too large to be stored");
    }
    let record = if too_large { Answer::none() } else { record };
    let (verdict, retain) = match (class, settings.mode) {
        (Class::Keep, Mode::Replay) => (Verdict::Completed(record), settings.retain),
        (Class::Keep, Mode::Reject) => (Verdict::Completed(Answer::none()), settings.retain),
        (Class::Release, _) => (Verdict::Released, settings.retain_unsettled),
        (Class::Unknown, _) => (Verdict::Unknown(record), settings.retain_unsettled),
    };
    Settlement { verdict, retain }
}

/// What the recovery hook found out about an attempt that ended without a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovery<T> {
    /// It happened, with this answer.
    Done(T),
    /// It did not happen and can no longer happen: run it.
    NotDone,
    /// Still nobody knows.
    Unknown,
}

/// A call that may run once it is known that an earlier attempt did not happen.
#[derive(Debug)]
#[must_use = "an attempt that is dropped is settled in the background"]
pub struct Asking(Running);

impl Asking {
    pub(crate) fn new(running: Running) -> Self {
        Self(running)
    }

    /// What the hook may know of this attempt; its fence keeps the earlier one out from now on.
    #[must_use]
    pub fn permit(&self) -> &Permit {
        self.0.permit()
    }

    /// Goes on with what the hook found out.
    ///
    /// # Errors
    /// As [`Running::complete`].
    pub async fn resolve(self, found: Recovery<Answer>) -> Result<Cleared, StoreError> {
        let settings = Arc::clone(self.0.settings());
        let fence = self.permit().fence();
        let evidence = self.0.attempt.evidence();
        let (class, record) = match found {
            // Asking took longer than the lease: somebody else may have asked and run meanwhile.
            Recovery::NotDone if self.permit().is_lost() => (Class::Unknown, evidence),
            Recovery::NotDone => return Ok(Cleared::Run(self.0)),
            Recovery::Done(answer) => (Class::Keep, answer),
            Recovery::Unknown => (Class::Unknown, evidence),
        };
        let prior = match settlement(&settings, class, record.clone()).verdict {
            Verdict::Completed(answer) if answer.is_none() => Prior::Refused(Refusal::Duplicate),
            Verdict::Completed(answer) => {
                Prior::Replay(Replay { answer, fence, expires_in: settings.retain })
            }
            Verdict::Released => Prior::Refused(Refusal::InProgress { retry_after: RETRY_AFTER }),
            Verdict::Unknown(evidence) => {
                let retry_after = match settings.on_lapse {
                    OnLapse::Ask { after } => Some(after),
                    OnLapse::Hold | OnLapse::Rerun => None,
                };
                Prior::Refused(Refusal::Unknown { evidence, retry_after })
            }
        };
        let finished = self.0.end(class, record).await?;
        Ok(Cleared::Prior(match finished {
            Finished::Stored | Finished::Pending => prior,
            Finished::Superseded(theirs) => theirs,
        }))
    }
}
