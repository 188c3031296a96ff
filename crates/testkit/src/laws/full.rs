//! A store without room: nothing new begins, and what has begun comes to its end.

use onlyonce_core::{ErrorKind, Settled, State, StateKind, Verdict};

use super::case::{Case, LONG, answer, completed, unknown};
use super::settle::shows;
use crate::harness::FullHarness;

/// A begin of a new record is refused for now, and leaves nothing behind.
pub async fn a_full_store_refuses_a_new_record(harness: &dyn FullHarness) {
    let before = Case::new(harness);
    before.settled(completed("kept")).await;
    harness.fill().await;
    let case = Case::new(harness);
    let refused = case.store.begin(&case.id, &case.claim()).await;
    assert_eq!(refused.expect_err("there is no room").kind(), ErrorKind::Unavailable);
    assert_eq!(case.get().await, None);
    // What is there is replayed all the same.
    assert_eq!(before.taken(&before.claim()).await.state, State::Completed(answer("kept")));
}

/// An attempt that has begun is renewed, repeats its begin and is settled, with its answer; and what is settled can be forgotten.
pub async fn a_full_store_still_takes_the_settlement_of_a_record_that_it_has(harness: &dyn FullHarness) {
    let verdicts = [completed("receipt 7"), Verdict::Released, unknown("timed out")];
    let mut begun = Vec::new();
    for verdict in verdicts {
        let case = Case::new(harness);
        let claim = case.claim();
        begun.push((case.acquire(&claim).await, claim, verdict, case));
    }
    harness.fill().await;
    for (attempt, claim, verdict, case) in &begun {
        assert_eq!(case.acquire(claim).await, *attempt, "its own begin again");
        assert_eq!(case.renew(&attempt.id(), LONG).await, Settled::Applied);
        assert_eq!(case.kind().await, StateKind::Running);
        assert_eq!(case.settle(&attempt.id(), verdict.clone()).await, Settled::Applied);
        assert!(shows(&case.state().await, verdict), "{verdict:?}");
        assert_eq!(case.settle(&attempt.id(), verdict.clone()).await, Settled::Applied, "again");
    }
    for (attempt, _, _, case) in &begun {
        assert_eq!(case.forget(attempt.fence).await, Settled::Applied);
        assert_eq!(case.get().await, None);
    }
}
