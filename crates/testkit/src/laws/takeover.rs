//! Beginning again after an attempt that was released, or that ended without a word.

use onlyonce_core::{Claim, Fence, Over, Settled, StateKind, Takeover, Verdict};

use super::case::{Acquired, Case, payload, unknown};
use crate::harness::Harness;

/// A released record is begun again by anybody with the same payload; nothing had happened.
pub async fn a_released_record_is_begun_again(harness: &dyn Harness) {
    for takeover in [Takeover::Never, Takeover::Allowed] {
        let case = Case::new(harness);
        let first = case.settled(Verdict::Released).await;
        let second = case.acquire(&case.claim_over(takeover)).await;
        assert_eq!((second.over, second.attempt), (Over::Released, 2));
        assert!(second.fence > first.fence);
        assert_eq!(case.kind().await, StateKind::Running);
    }
}

/// A record whose lease is over stays as it is for whoever may not take over, and is taken by whoever may.
pub async fn a_lapsed_record_is_held_unless_takeover_is_allowed(harness: &dyn Harness) {
    let case = Case::new(harness);
    let first = case.lapse().await;
    held_then_taken_over(&case, first).await;
}

/// A record whose outcome is unknown is held in the same way.
pub async fn an_unknown_record_is_held_unless_takeover_is_allowed(harness: &dyn Harness) {
    let case = Case::new(harness);
    let first = case.settled(unknown("no reply")).await;
    held_then_taken_over(&case, first).await;
}

async fn held_then_taken_over(case: &Case<'_>, first: Acquired) {
    for _ in 0..2 {
        let snapshot = case.taken(&case.claim()).await;
        assert_eq!((snapshot.state.kind(), snapshot.fence), (StateKind::Lapsed, first.fence));
    }
    let second = case.acquire(&case.claim_over(Takeover::Allowed)).await;
    assert_eq!((second.over, second.attempt), (Over::Lapsed, 2));
    assert!(second.fence > first.fence);
    let snapshot = case.snapshot().await;
    assert_eq!((snapshot.state.kind(), snapshot.fence), (StateKind::Running, second.fence));
}

/// Nobody takes over a released, unknown or lapsed record with another payload.
pub async fn takeover_needs_the_same_payload(harness: &dyn Harness) {
    let released = Case::new(harness);
    let first = released.settled(Verdict::Released).await;
    refuses_another_payload(&released, first).await;

    let unsure = Case::new(harness);
    let first = unsure.settled(unknown("?")).await;
    refuses_another_payload(&unsure, first).await;

    let lapsed = Case::new(harness);
    let first = lapsed.lapse().await;
    refuses_another_payload(&lapsed, first).await;
}

async fn refuses_another_payload(case: &Case<'_>, first: Acquired) {
    for takeover in [Takeover::Never, Takeover::Allowed, Takeover::Seen(first.fence)] {
        let other = Claim { fingerprint: payload("another payload"), ..case.claim_over(takeover) };
        assert_eq!(case.taken(&other).await.fence, first.fence);
    }
}

/// Who saw a released, unknown or lapsed record may take over exactly that.
pub async fn takeover_of_a_seen_fence_is_acquired(harness: &dyn Harness) {
    let lapsed = Case::new(harness);
    let first = lapsed.lapse().await;
    let second = lapsed.acquire(&lapsed.claim_over(Takeover::Seen(first.fence))).await;
    assert_eq!(second.over, Over::Lapsed);

    for (verdict, over) in [(Verdict::Released, Over::Released), (unknown("?"), Over::Lapsed)] {
        let case = Case::new(harness);
        let first = case.settled(verdict).await;
        let second = case.acquire(&case.claim_over(Takeover::Seen(first.fence))).await;
        assert_eq!(second.over, over);
        assert!(second.fence > first.fence);
    }
}

/// Who saw an earlier attempt than the last takes nothing over, be the last one released, unknown or lapsed.
pub async fn takeover_of_a_seen_fence_loses_to_a_later_one(harness: &dyn Harness) {
    let case = Case::new(harness);
    let mut seen = case.settled(unknown("first")).await.fence;
    for verdict in [unknown("second"), Verdict::Released] {
        let next = case.acquire(&case.claim_over(Takeover::Seen(seen))).await;
        assert_eq!(case.settle(&next.id(), verdict).await, Settled::Applied);
        for stale in [seen, Fence(next.fence.0 + 1), Fence(0)] {
            let snapshot = case.taken(&case.claim_over(Takeover::Seen(stale))).await;
            assert_eq!(snapshot.fence, next.fence);
        }
        seen = next.fence;
    }
    let last = case.acquire(&Claim { lease: case.unit(), ..case.claim() }).await;
    case.pass(2).await;
    let snapshot = case.taken(&case.claim_over(Takeover::Seen(seen))).await;
    assert_eq!((snapshot.fence, snapshot.state.kind()), (last.fence, StateKind::Lapsed));
}
