//! Repeating store calls, without a storm: a few times while somebody waits, until it is answered when nobody does.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Moment};
use crate::drain::Visit;
use crate::error::{ErrorKind, StoreError};
use crate::keeper::Job;
use crate::key::RecordId;
use crate::record::{Answer, AttemptId, Begin, Claim, Settled, Settlement, Takeover, Verdict};
use crate::store::Store;

const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(10);

/// The pause before the given repeat (from 1): doubling, with full jitter, so that many callers do not march in step.
pub(crate) fn backoff(repeat: u32) -> Duration {
    let ceiling = SHORTEST.saturating_mul(1 << repeat.min(16)).min(LONGEST);
    SHORTEST / 2 + ceiling.mul_f64(rand::random::<f64>())
}

/// How often a call is repeated at once, before the caller is told.
pub(crate) const REPEATS: u32 = 3;

/// Begins, and repeats that while it is ambiguous: the owner makes it safe. Also says how often it was repeated.
pub(crate) async fn insist_on_begin(
    store: &dyn Store,
    clock: &dyn Clock,
    id: &RecordId,
    claim: &Claim,
) -> (Result<Begin, StoreError>, u32) {
    let is_open = |error: &StoreError| error.kind() == ErrorKind::Ambiguous;
    match still_open(store.begin(id, claim).await, is_open) {
        Ok(answer) => (answer, 0),
        // Boxed because it is rare, and would make every call larger.
        Err(error) => Box::pin(repeat(clock, ("begin", id), error, is_open, || store.begin(id, claim))).await,
    }
}

/// Whether a copy of a begin may have landed that nobody heard of, or may yet: an ambiguous one, also when its repeat found
/// somebody else there.
pub(crate) fn may_have_landed(begun: &Result<Begin, StoreError>, repeats: u32) -> bool {
    match begun {
        Ok(Begin::Acquired { .. }) => false,
        Ok(Begin::Taken(_)) => repeats > 0,
        Err(error) => repeats > 0 || error.kind() == ErrorKind::Ambiguous,
    }
}

/// Settles, and repeats that while it may help.
pub(crate) async fn insist_on_settle(
    store: &dyn Store,
    clock: &dyn Clock,
    id: &RecordId,
    attempt: &AttemptId,
    how: &Settlement,
) -> Result<Settled, StoreError> {
    let is_open = |error: &StoreError| error.kind() != ErrorKind::Rejected;
    match still_open(store.settle(id, attempt, how).await, is_open) {
        Ok(answer) => answer,
        Err(error) => {
            let again = || store.settle(id, attempt, how);
            Box::pin(repeat(clock, ("settle", id), error, is_open, again)).await.0
        }
    }
}

/// The answer, or the error that leaves it open.
fn still_open<T>(
    answer: Result<T, StoreError>,
    is_open: impl Fn(&StoreError) -> bool,
) -> Result<Result<T, StoreError>, StoreError> {
    match answer {
        Err(error) if is_open(&error) => Err(error),
        answer => Ok(answer),
    }
}

/// Repeats a call that failed, a few times, while its error `is_open`. Also says how often.
async fn repeat<T, F>(
    clock: &dyn Clock,
    (what, id): (&'static str, &RecordId),
    mut error: StoreError,
    is_open: impl Fn(&StoreError) -> bool,
    mut call: impl FnMut() -> F,
) -> (Result<T, StoreError>, u32)
where
    F: Future<Output = Result<T, StoreError>>,
{
    for repeats in 1..=REPEATS {
        crate::seldom!(warn, record = %id, error = &error as &dyn std::error::Error, "{what} is repeated");
        clock.sleep(backoff(repeats)).await;
        match call().await {
            Err(next) if is_open(&next) => error = next,
            other => return (other, repeats),
        }
    }
    (Err(error), REPEATS)
}

/// Settles until it is applied or lost. `None` if the store refuses for good; an answer that it refuses is left out.
pub(crate) async fn settle(
    store: &dyn Store,
    clock: &dyn Clock,
    id: &RecordId,
    attempt: &AttemptId,
    how: &mut Settlement,
) -> Option<Settled> {
    loop {
        let settled = until_answered(clock, None, || store.settle(id, attempt, how)).await;
        match left_of(id, &settled, how) {
            Some(less) => *how = less,
            None => {
                let failed = |error: &StoreError| {
                    tracing::error!(record = %id, error = error as &dyn std::error::Error, "a settlement can't be stored");
                };
                return settled.inspect_err(failed).ok();
            }
        }
    }
}

/// What is left of a settlement that was refused for good, most likely because of its answer: what was done stays done.
pub(crate) fn left_of(
    id: &RecordId,
    settled: &Result<Settled, StoreError>,
    how: &Settlement,
) -> Option<Settlement> {
    let error = settled.as_ref().err().filter(|error| error.kind() == ErrorKind::Rejected)?;
    let less = how.without_answer()?;
    tracing::error!(
        record = %id, error = error as &dyn std::error::Error,
        "the store does not take the answer; the record is kept without it, and duplicates are refused"
    );
    Some(less)
}

/// Repeats a call until it is answered, is refused for good, or `give_up` has come.
pub(crate) async fn until_answered<T, F>(
    clock: &dyn Clock,
    give_up: Option<Moment>,
    mut call: impl FnMut() -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut repeat = 0;
    loop {
        match call().await {
            Err(error)
                if !matches!(error.kind(), ErrorKind::Rejected | ErrorKind::Corrupt)
                    && give_up.is_none_or(|give_up| clock.now() < give_up) =>
            {
                repeat += 1;
                clock.sleep(backoff(repeat)).await;
            }
            answer => return answer,
        }
    }
}

/// Frees what a begin may have taken whose reply was lost. What was seen of an attempt that it may have taken over is put back.
pub(crate) fn undo_begin(
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    id: RecordId,
    claim: &Claim,
    evidence: Answer,
    visit: Visit,
) -> impl Job + use<> {
    let (store, clock) = (Arc::clone(store), Arc::clone(clock));
    let attempt = AttemptId { owner: claim.owner, fence: None };
    // It ran nothing itself. But where it may have taken over a lapsed attempt, releasing would say more than is known.
    let verdict = match claim.takeover {
        Takeover::Never => Verdict::Released,
        Takeover::Allowed | Takeover::Seen(_) => Verdict::Unknown(evidence),
    };
    let how = Settlement { verdict, retain: claim.retain_unsettled };
    let lease = claim.lease;
    let until_heard = Arc::new(Mutex::new(Some(visit)));
    move || {
        let (store, clock, how) = (Arc::clone(&store), Arc::clone(&clock), how.clone());
        let until_heard = Arc::clone(&until_heard);
        async move {
            let settle = || store.settle(&id, &attempt, &how);
            let undone = undo(&*clock, lease, &until_heard, || async {
                settle().await.map(|settled| settled == Settled::Applied)
            })
            .await;
            // What was seen is not lost because the store is away for longer than a lease.
            if undone.is_err() && matches!(&how.verdict, Verdict::Unknown(evidence) if !evidence.is_none()) {
                let _ = until_answered(&*clock, None, settle).await;
            }
        }
    }
}

/// Undoes what a lost request may have done. It may land late, so this goes on until something was undone or its `lease` is
/// over, and no longer: what lands later than that runs out by itself. `call` says whether there was something to undo, and
/// so does the result, which is that of the last try.
///
/// What is in `until_heard` is dropped at the first answer: what is still on its way may never land, and nobody waits for that.
pub(crate) async fn undo<T, F>(
    clock: &dyn Clock,
    lease: Duration,
    until_heard: &Mutex<Option<T>>,
    mut call: impl FnMut() -> F,
) -> Result<bool, StoreError>
where
    F: Future<Output = Result<bool, StoreError>>,
{
    let give_up = clock.now().plus(lease);
    let mut repeat = 0;
    loop {
        let undone = call().await;
        if undone.is_ok() {
            drop(until_heard.lock().take());
        }
        if matches!(undone, Ok(true)) || clock.now() >= give_up {
            return undone;
        }
        repeat += 1;
        clock.sleep(backoff(repeat)).await;
    }
}
