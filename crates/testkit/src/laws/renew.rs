//! Keeping a lease, and not getting it back.

use onlyonce_core::{Claim, Settled, State, StateKind, Takeover, Verdict};

use super::case::{Case, LONG, completed, unknown};
use crate::harness::Harness;

/// A renewal lets the attempt run for the given span from now, be that longer or shorter than before.
pub async fn a_renewal_counts_from_now(harness: &dyn Harness) {
    let longer = Case::new(harness);
    let attempt = longer.acquire(&Claim { lease: longer.unit() * 3, ..longer.claim() }).await;
    assert_eq!(longer.renew(&attempt.id(), LONG).await, Settled::Applied);
    let shorter = Case::new(harness);
    let attempt = shorter.run().await;
    assert_eq!(shorter.renew(&attempt.id(), shorter.unit()).await, Settled::Applied);
    longer.pass(4).await;
    assert_eq!(longer.kind().await, StateKind::Running);
    assert_eq!(shorter.kind().await, StateKind::Lapsed);
}

/// Neither another owner nor the right owner with a wrong fence renews; the lease stays as it was.
pub async fn a_renewal_needs_owner_and_fence(harness: &dyn Harness) {
    let case = Case::new(harness);
    let attempt = case.run().await;
    for impostor in attempt.impostors() {
        assert_eq!(case.renew(&impostor, case.unit()).await, Settled::Lost, "{impostor:?}");
    }
    let State::Running { lease_left } = case.state().await else { panic!("it runs") };
    assert!(lease_left > LONG / 2, "the lease was changed to {lease_left:?}");
}

/// The fence is compared where it is known; the owner alone will do where it is not.
pub async fn a_renewal_by_owner_alone_is_applied(harness: &dyn Harness) {
    let case = Case::new(harness);
    let attempt = case.run().await;
    assert_eq!(case.renew(&attempt.by_owner_alone(), LONG).await, Settled::Applied);
}

/// After the lease is over a renewal is lost: others may have been told that the record lapsed.
pub async fn a_lost_lease_cannot_be_renewed(harness: &dyn Harness) {
    let case = Case::new(harness);
    let attempt = case.lapse().await;
    assert_eq!(case.renew(&attempt.id(), LONG).await, Settled::Lost);
    assert_eq!(case.kind().await, StateKind::Lapsed);
}

/// What was settled, in whatever way, does not run again by a renewal.
pub async fn a_settled_attempt_cannot_be_renewed(harness: &dyn Harness) {
    for verdict in [completed("done"), Verdict::Released, unknown("?")] {
        let case = Case::new(harness);
        let attempt = case.settled(verdict).await;
        let before = case.kind().await;
        assert_eq!(case.renew(&attempt.id(), LONG).await, Settled::Lost);
        assert_eq!(case.kind().await, before);
    }
}

/// An attempt that was taken over does not renew the lease of its successor.
pub async fn a_zombie_cannot_renew(harness: &dyn Harness) {
    let case = Case::new(harness);
    let zombie = case.lapse().await;
    let successor = case.acquire(&case.claim_over(Takeover::Allowed)).await;
    for attempt in [zombie.id(), zombie.by_owner_alone()] {
        assert_eq!(case.renew(&attempt, case.unit()).await, Settled::Lost);
    }
    let snapshot = case.snapshot().await;
    assert_eq!((snapshot.fence, snapshot.state.kind()), (successor.fence, StateKind::Running));
    assert_eq!(case.renew(&successor.id(), LONG).await, Settled::Applied);
}
