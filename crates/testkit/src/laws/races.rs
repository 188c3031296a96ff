//! Two calls about one record at the same time: whatever their order, both fit to one. A store that looks and writes in two steps
//! tells both that they won.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{
    AttemptId, Begin, Claim, ErrorKind, Fence, Over, Owner, Settled, Settlement, StateKind, StoreError,
    Takeover, Verdict,
};
use parking_lot::Mutex;
use tokio::task::{JoinHandle, JoinSet};

use super::case::{Acquired, Case, KEPT, LONG, completed, ok, unknown};
use super::settle::shows;
use crate::harness::Harness;

/// So many records are raced for at the same time, each by its own rivals.
const RECORDS: usize = 48;
/// How often a call is repeated that did not happen.
const REPEATS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

fn cases(harness: &dyn Harness) -> Vec<Case<'_>> {
    (0..RECORDS).map(|_| Case::new(harness)).collect()
}

/// Calls until it has happened: of two that meet, a store may send one away, if it says that nothing was done.
async fn insist<T, F>(mut call: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    for _ in 0..REPEATS {
        match call().await {
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Busy) => {
                tokio::time::sleep(PAUSE).await;
            }
            said => return ok(said),
        }
    }
    ok(call().await)
}

fn settling(case: &Case<'_>, attempt: AttemptId, verdict: Verdict) -> JoinHandle<Settled> {
    let (store, id) = (Arc::clone(&case.store), case.id);
    let how = Settlement { verdict, retain: KEPT };
    tokio::spawn(async move { insist(|| store.settle(&id, &attempt, &how)).await })
}

fn beginning(case: &Case<'_>, claim: Claim) -> JoinHandle<Option<Acquired>> {
    let (store, id) = (Arc::clone(&case.store), case.id);
    tokio::spawn(async move {
        match insist(|| store.begin(&id, &claim)).await {
            Begin::Acquired { fence, attempt, over } => {
                Some(Acquired { owner: claim.owner, fence, attempt, over })
            }
            Begin::Taken(_) => None,
        }
    })
}

/// What a call said, which must not have panicked.
async fn said<T>(call: JoinHandle<T>) -> T {
    call.await.expect("calls do not fail")
}

/// Starts two calls, now the one first and now the other.
fn start<A, B>(turn: usize, a: impl FnOnce() -> A, b: impl FnOnce() -> B) -> (A, B) {
    if turn.is_multiple_of(2) {
        let a = a();
        (a, b())
    } else {
        let b = b();
        (a(), b)
    }
}

/// Who comes back after its lease either completes the record, and then nobody takes it over, or has lost it to who did.
pub async fn a_late_settlement_and_a_takeover_have_one_winner(harness: &dyn Harness) {
    let cases = cases(harness);
    let mut late = Vec::new();
    for case in &cases {
        late.push(case.acquire(&Claim { lease: case.unit(), ..case.claim() }).await);
    }
    cases[0].pass(2).await;
    let rivals: Vec<_> = (cases.iter().zip(&late).enumerate())
        .map(|(turn, (case, late))| {
            let settle = || settling(case, late.id(), completed("late"));
            start(turn, settle, || beginning(case, case.claim_over(Takeover::Seen(late.fence))))
        })
        .collect();
    for (case, (settled, successor)) in cases.iter().zip(rivals) {
        match (said(settled).await, said(successor).await) {
            (Settled::Applied, None) => assert!(shows(&case.state().await, &completed("late"))),
            (Settled::Lost, Some(successor)) => {
                let snapshot = case.snapshot().await;
                assert_eq!((snapshot.state.kind(), snapshot.fence), (StateKind::Running, successor.fence));
                assert_eq!(case.settle(&successor.id(), completed("next")).await, Settled::Applied);
                assert!(shows(&case.state().await, &completed("next")));
            }
            (settled, successor) => panic!("the late settlement is {settled:?}, the takeover {successor:?}"),
        }
    }
}

/// Of different verdicts of one attempt at the same time one is applied, and that is what the record says.
pub async fn one_of_two_verdicts_at_once_is_kept(harness: &dyn Harness) {
    let verdicts = [completed("a"), Verdict::Released, completed("b"), unknown("?")];
    let cases = cases(harness);
    let mut rivals = Vec::new();
    for (turn, case) in cases.iter().enumerate() {
        let attempt = case.run().await;
        let mut verdicts = verdicts.clone();
        verdicts.rotate_left(turn % 4);
        rivals.push((attempt, verdicts));
    }
    let rivals: Vec<_> = (cases.iter().zip(rivals))
        .map(|(case, (attempt, verdicts))| {
            verdicts.map(|verdict| (verdict.clone(), settling(case, attempt.id(), verdict)))
        })
        .collect();
    for (case, rivals) in cases.iter().zip(rivals) {
        let mut applied = Vec::new();
        for (verdict, settled) in rivals {
            if said(settled).await == Settled::Applied {
                applied.push(verdict);
            }
        }
        let [winner] = &applied[..] else { panic!("applied were {applied:?}") };
        let state = case.state().await;
        assert!(shows(&state, winner), "{winner:?} was applied, and it is {state:?}");
    }
}

/// A renewal at the time of a settlement does not bring the attempt back: what was said stays said.
pub async fn a_renewal_never_undoes_a_settlement(harness: &dyn Harness) {
    let verdicts = [completed("a"), Verdict::Released, unknown("?")];
    let cases = cases(harness);
    let mut attempts = Vec::new();
    for case in &cases {
        attempts.push(case.run().await.id());
    }
    let rivals: Vec<_> = (cases.iter().zip(attempts).enumerate())
        .map(|(turn, (case, attempt))| {
            let (store, id, verdict) = (Arc::clone(&case.store), case.id, verdicts[turn % 3].clone());
            let renew = || tokio::spawn(async move { insist(|| store.renew(&id, &attempt, LONG)).await });
            let (settled, renewed) = start(turn, || settling(case, attempt, verdict.clone()), renew);
            (verdict, settled, renewed)
        })
        .collect();
    for (case, (verdict, settled, renewed)) in cases.iter().zip(rivals) {
        said(renewed).await;
        assert_eq!(said(settled).await, Settled::Applied);
        let state = case.state().await;
        assert!(shows(&state, &verdict), "{verdict:?} was applied, and it is {state:?}");
    }
}

/// A record that is forgotten and begun again at the same time is either forgotten first, and the attempt is a first one, or is not
/// forgotten. The attempt is there in both cases.
pub async fn a_forget_never_deletes_what_was_begun_meanwhile(harness: &dyn Harness) {
    let cases = cases(harness);
    let mut seen = Vec::new();
    for (turn, case) in cases.iter().enumerate() {
        let verdict = if turn % 4 < 2 { Verdict::Released } else { unknown("?") };
        seen.push(case.settled(verdict).await.fence);
    }
    let rivals: Vec<_> = (cases.iter().zip(seen).enumerate())
        .map(|(turn, (case, seen))| {
            let (store, id) = (Arc::clone(&case.store), case.id);
            let forget = || tokio::spawn(async move { insist(|| store.forget(&id, seen)).await });
            start(turn, forget, || beginning(case, case.claim_over(Takeover::Allowed)))
        })
        .collect();
    for (case, (forgotten, begun)) in cases.iter().zip(rivals) {
        let (forgotten, begun) = (said(forgotten).await, said(begun).await.expect("nobody else begins"));
        let is_first = (begun.over, begun.attempt) == (Over::Nothing, 1);
        assert_eq!(forgotten == Settled::Applied, is_first, "forgotten: {forgotten:?}, and {begun:?}");
        runs(case, &begun).await;
    }
}

/// A sweep at the time of a begin deletes the expired record, or nothing: never the attempt that was begun over it. And of two
/// begins over an expired record one is acquired.
pub async fn a_sweep_never_deletes_what_was_begun_meanwhile(harness: &dyn Harness) {
    let cases = cases(harness);
    for case in &cases {
        let attempt = case.run().await;
        assert_eq!(case.settle_for(&attempt.id(), completed("old"), case.unit()).await, Settled::Applied);
    }
    cases[0].pass(2).await;
    let (mut sweeps, mut rivals) = (JoinSet::new(), Vec::new());
    for (turn, case) in cases.iter().enumerate() {
        if turn.is_multiple_of(16) {
            let store = harness.store();
            // One that fails has deleted something or nothing, which is all the same here; it is not waited for by who begins.
            sweeps.spawn(async move { drop(store.sweep(500).await) });
        }
        rivals.push([beginning(case, case.claim()), beginning(case, case.claim())]);
    }
    sweeps.join_all().await;
    for (case, [one, other]) in cases.iter().zip(rivals) {
        let (one, other) = (said(one).await, said(other).await);
        let winner = match (one, other) {
            (Some(winner), None) | (None, Some(winner)) => winner,
            both => panic!("two begins, one winner: {both:?}"),
        };
        assert_eq!((winner.over, winner.attempt), (Over::Nothing, 1));
        runs(case, &winner).await;
    }
}

/// Many who begin, complete and forget the same record have fences that rise, in the order in which they had it.
pub async fn fences_rise_however_many_begin_and_forget(harness: &dyn Harness) {
    const CALLERS: usize = 8;
    const TURNS: usize = 6;
    let (case, fences) = (Case::new(harness), Arc::new(Mutex::new(Vec::<Fence>::new())));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (store, id, fences, claim) =
            (Arc::clone(&case.store), case.id, Arc::clone(&fences), case.claim());
        callers.spawn(async move {
            let mut turns = 0;
            while turns < TURNS {
                let claim = Claim { owner: Owner::random(), ..claim.clone() };
                let Begin::Acquired { fence, .. } = insist(|| store.begin(&id, &claim)).await else {
                    tokio::task::yield_now().await;
                    continue;
                };
                // Nobody else has the record now.
                fences.lock().push(fence);
                let attempt = AttemptId { owner: claim.owner, fence: Some(fence) };
                let how = Settlement { verdict: completed("a"), retain: KEPT };
                assert_eq!(insist(|| store.settle(&id, &attempt, &how)).await, Settled::Applied);
                assert_eq!(insist(|| store.forget(&id, fence)).await, Settled::Applied);
                turns += 1;
            }
        });
    }
    callers.join_all().await;
    let fences = fences.lock();
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "fences fell: {fences:?}");
}

async fn runs(case: &Case<'_>, attempt: &Acquired) {
    let snapshot = case.get().await.expect("what was begun is there");
    assert_eq!((snapshot.state.kind(), snapshot.fence), (StateKind::Running, attempt.fence));
    assert_eq!(case.settle(&attempt.id(), completed("new")).await, Settled::Applied);
    assert!(shows(&case.state().await, &completed("new")));
}
