//! Ending an attempt: once, by its holder, for good.

use onlyonce_core::{AttemptId, Fence, Owner, Settled, State, StateKind, Takeover, Verdict};

use super::case::{Case, LONG, answer, completed, unknown};
use crate::harness::Harness;

fn verdicts() -> [Verdict; 3] {
    [completed("receipt 7"), Verdict::Released, unknown("timed out")]
}

pub(super) fn shows(state: &State, verdict: &Verdict) -> bool {
    match (state, verdict) {
        (State::Completed(stored), Verdict::Completed(given)) => stored == given,
        (State::Lapsed { evidence, .. }, Verdict::Unknown(given)) => evidence == given,
        (State::Released, Verdict::Released) => true,
        _ => false,
    }
}

/// A settlement is what the record says from then on.
pub async fn each_verdict_is_read_back(harness: &dyn Harness) {
    for verdict in verdicts() {
        let case = Case::new(harness);
        let attempt = case.settled(verdict.clone()).await;
        let snapshot = case.snapshot().await;
        assert!(shows(&snapshot.state, &verdict), "{verdict:?} is shown as {snapshot:?}");
        assert_eq!((snapshot.fence, snapshot.attempts), (attempt.fence, 1));
    }
}

/// Neither another owner nor the right owner with a wrong fence settles.
pub async fn a_settlement_needs_owner_and_fence(harness: &dyn Harness) {
    let case = Case::new(harness);
    let attempt = case.run().await;
    for impostor in attempt.impostors() {
        for verdict in verdicts() {
            assert_eq!(case.settle(&impostor, verdict).await, Settled::Lost, "{impostor:?}");
        }
    }
    assert_eq!(case.kind().await, StateKind::Running);
    assert_eq!(case.settle(&attempt.id(), completed("mine")).await, Settled::Applied);
}

/// An attempt that was taken over can't settle, neither while its successor runs nor after it.
pub async fn a_zombie_cannot_settle(harness: &dyn Harness) {
    let case = Case::new(harness);
    let zombie = case.lapse().await;
    let successor = case.acquire(&case.claim_over(Takeover::Allowed)).await;
    for attempt in [zombie.id(), zombie.by_owner_alone()] {
        for verdict in verdicts() {
            assert_eq!(case.settle(&attempt, verdict).await, Settled::Lost);
        }
    }
    assert_eq!(case.kind().await, StateKind::Running);
    assert_eq!(case.settle(&successor.id(), completed("the successor's")).await, Settled::Applied);
    for verdict in verdicts() {
        assert_eq!(case.settle(&zombie.id(), verdict).await, Settled::Lost);
    }
    assert_eq!(case.state().await, State::Completed(answer("the successor's")));
}

/// As long as nobody took over, the word of the holder still counts after its lease.
pub async fn a_holder_past_its_lease_may_still_settle_if_nobody_took_over(harness: &dyn Harness) {
    for verdict in verdicts() {
        let case = Case::new(harness);
        let late = case.lapse().await;
        assert_eq!(case.settle(&late.id(), verdict.clone()).await, Settled::Applied);
        assert!(shows(&case.state().await, &verdict));
    }
}

/// The same settlement again, because its reply was lost, is applied again and changes nothing.
pub async fn repeating_a_settlement_is_applied(harness: &dyn Harness) {
    for verdict in verdicts() {
        let case = Case::new(harness);
        let attempt = case.settled(verdict.clone()).await;
        for id in [attempt.id(), attempt.by_owner_alone()] {
            assert_eq!(case.settle(&id, verdict.clone()).await, Settled::Applied, "{verdict:?}");
        }
        assert!(shows(&case.state().await, &verdict));
    }
}

/// Once settled, the same attempt can't say anything else: a zombie can't overwrite what a person resolved.
pub async fn another_settlement_is_lost(harness: &dyn Harness) {
    for first in verdicts() {
        let case = Case::new(harness);
        let attempt = case.settled(first.clone()).await;
        let others = verdicts().into_iter().chain([completed("another receipt"), unknown("other evidence")]);
        for other in others.filter(|other| *other != first) {
            assert_eq!(
                case.settle(&attempt.id(), other.clone()).await,
                Settled::Lost,
                "{first:?}, {other:?}"
            );
        }
        assert!(shows(&case.state().await, &first));
    }
}

/// An attempt that never heard its fence releases by its owner what it may have taken, also when its lease is over.
pub async fn settling_by_owner_alone_frees_a_begin_whose_reply_was_lost(harness: &dyn Harness) {
    let running = Case::new(harness);
    let unheard = running.run().await;
    assert_eq!(running.settle(&unheard.by_owner_alone(), Verdict::Released).await, Settled::Applied);
    let next = running.run().await;
    assert!(next.fence > unheard.fence);

    let lapsed = Case::new(harness);
    let unheard = lapsed.lapse().await;
    assert_eq!(lapsed.settle(&unheard.by_owner_alone(), Verdict::Released).await, Settled::Applied);
    lapsed.run().await;
}

/// Speaking about a record that is not there is lost, and makes none.
pub async fn what_is_absent_cannot_be_settled_renewed_or_forgotten(harness: &dyn Harness) {
    let case = Case::new(harness);
    let owner = Owner::random();
    for attempt in [AttemptId { owner, fence: None }, AttemptId { owner, fence: Some(Fence(1)) }] {
        for verdict in verdicts() {
            assert_eq!(case.settle(&attempt, verdict).await, Settled::Lost);
        }
        assert_eq!(case.renew(&attempt, LONG).await, Settled::Lost);
    }
    assert_eq!(case.forget(Fence(1)).await, Settled::Lost);
    assert_eq!(case.get().await, None);
}
