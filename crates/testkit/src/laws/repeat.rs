//! A begin that is sent twice, because its reply was lost or its driver resent it.

use onlyonce_core::{Claim, Over, Settled, StateKind, Takeover, Verdict};

use super::case::{Acquired, Case, LONG, completed, unknown};
use crate::harness::Harness;

/// The same owner that begins again while it runs is acquired again, with the same fence.
pub async fn a_repeated_begin_is_recognised(harness: &dyn Harness) {
    let case = Case::new(harness);
    let claim = case.claim();
    let first = case.acquire(&claim).await;
    for _ in 0..3 {
        assert_eq!(case.acquire(&claim).await, first);
    }
    assert_eq!(case.settle(&first.id(), completed("once")).await, Settled::Applied);
}

/// A repeated begin hears again what it was begun over: who took over a lapsed attempt must still ask about it.
pub async fn a_repeated_begin_reports_the_same_takeover(harness: &dyn Harness) {
    let lapsed = Case::new(harness);
    lapsed.lapse().await;
    repeats(&lapsed, Over::Lapsed).await;

    let unsure = Case::new(harness);
    unsure.settled(unknown("?")).await;
    repeats(&unsure, Over::Lapsed).await;

    let released = Case::new(harness);
    released.settled(Verdict::Released).await;
    repeats(&released, Over::Released).await;
}

async fn repeats(case: &Case<'_>, over: Over) {
    let claim = case.claim_over(Takeover::Allowed);
    let first = case.acquire(&claim).await;
    assert_eq!((first.over, first.attempt), (over, 2));
    assert_eq!(case.acquire(&claim).await, first, "the repeat");
}

/// A repeated begin counts its lease anew.
pub async fn a_repeated_begin_renews_the_lease(harness: &dyn Harness) {
    let case = Case::new(harness);
    let claim = Claim { lease: case.unit() * 3, ..case.claim() };
    let first = case.acquire(&claim).await;
    assert_eq!(case.acquire(&Claim { lease: LONG, ..claim }).await, first);
    case.pass(4).await;
    assert_eq!(case.kind().await, StateKind::Running);
}

/// A late copy of the begin of an attempt that was released does not start it again.
pub async fn an_owner_that_released_cannot_reacquire(harness: &dyn Harness) {
    cannot_reacquire(harness, Verdict::Released, StateKind::Released).await;
}

/// A late copy of the begin of an attempt that was completed does not start it again.
pub async fn an_owner_that_completed_cannot_reacquire(harness: &dyn Harness) {
    cannot_reacquire(harness, completed("done"), StateKind::Completed).await;
}

/// A late copy of the begin of an attempt that lapsed, or ended as unknown, does not start it again, even where lapsed
/// records may be taken over.
pub async fn an_owner_that_lapsed_cannot_reacquire(harness: &dyn Harness) {
    cannot_reacquire(harness, unknown("?"), StateKind::Lapsed).await;

    let case = Case::new(harness);
    let claim = Claim { lease: case.unit(), ..case.claim() };
    let first = case.acquire(&claim).await;
    case.pass(2).await;
    refuses_copies(&case, &claim, first, StateKind::Lapsed).await;
}

async fn cannot_reacquire(harness: &dyn Harness, verdict: Verdict, state: StateKind) {
    let case = Case::new(harness);
    let claim = case.claim();
    let first = case.acquire(&claim).await;
    assert_eq!(case.settle(&first.id(), verdict).await, Settled::Applied);
    refuses_copies(&case, &claim, first, state).await;
}

async fn refuses_copies(case: &Case<'_>, claim: &Claim, first: Acquired, state: StateKind) {
    for takeover in [Takeover::Never, Takeover::Allowed, Takeover::Seen(first.fence)] {
        let snapshot = case.taken(&Claim { takeover, ..claim.clone() }).await;
        assert_eq!((snapshot.state.kind(), snapshot.fence), (state, first.fence));
    }
}
