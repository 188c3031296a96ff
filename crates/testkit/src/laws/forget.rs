//! Deleting a record on purpose.

use onlyonce_core::{Fence, Over, Settled, StateKind, Takeover, Verdict};

use super::case::{Case, completed, unknown};
use crate::harness::Harness;

/// What runs is not deleted, nor what has moved on since it was seen.
pub async fn forget_refuses_a_running_record_and_a_stale_fence(harness: &dyn Harness) {
    let case = Case::new(harness);
    let first = case.run().await;
    assert_eq!(case.forget(first.fence).await, Settled::Lost);
    assert_eq!(case.kind().await, StateKind::Running);
    assert_eq!(case.settle(&first.id(), Verdict::Released).await, Settled::Applied);
    let second = case.settled(completed("a")).await;
    for stale in [first.fence, Fence(second.fence.0 + 1), Fence(0)] {
        assert_eq!(case.forget(stale).await, Settled::Lost);
    }
    assert_eq!(case.kind().await, StateKind::Completed);
}

/// Completed, released, unknown and lapsed records can be forgotten, once; the next attempt is a first one.
pub async fn a_forgotten_record_is_absent(harness: &dyn Harness) {
    for verdict in [completed("a"), Verdict::Released, unknown("?")] {
        let case = Case::new(harness);
        let attempt = case.settled(verdict).await;
        is_forgotten(&case, attempt.fence).await;
    }
    let case = Case::new(harness);
    let attempt = case.lapse().await;
    is_forgotten(&case, attempt.fence).await;
}

async fn is_forgotten(case: &Case<'_>, fence: Fence) {
    assert_eq!(case.forget(fence).await, Settled::Applied);
    assert_eq!(case.get().await, None);
    assert_eq!(case.forget(fence).await, Settled::Lost);
    let next = case.acquire(&case.claim_over(Takeover::Seen(fence))).await;
    assert_eq!((next.attempt, next.over), (1, Over::Nothing));
    assert!(next.fence > fence);
}
