//! How long records are kept, and that an expired one is as good as absent before anybody sweeps.

use onlyonce_core::{Claim, Over, Settled, StateKind, Takeover, Verdict};

use super::case::{Case, KEPT, LONG, completed, unknown};
use crate::harness::Harness;

/// Retention counts from the settlement, not from the begin, and looking at a record does not keep it longer.
pub async fn expiry_counts_from_completion_and_is_not_reset_by_reads(harness: &dyn Harness) {
    let case = Case::new(harness);
    let attempt = case.run().await;
    case.pass(4).await;
    assert_eq!(case.settle_for(&attempt.id(), completed("a"), case.unit() * 4).await, Settled::Applied);
    case.pass(2).await;
    assert_eq!(case.kind().await, StateKind::Completed);
    case.taken(&case.claim()).await;
    case.pass(3).await;
    assert_eq!(case.get().await, None);
}

/// A settlement that is repeated is not kept longer for it.
pub async fn repeating_a_settlement_does_not_keep_it_longer(harness: &dyn Harness) {
    let case = Case::new(harness);
    let attempt = case.run().await;
    assert_eq!(case.settle_for(&attempt.id(), completed("a"), case.unit() * 4).await, Settled::Applied);
    case.pass(1).await;
    assert_eq!(case.settle_for(&attempt.id(), completed("a"), KEPT).await, Settled::Applied);
    case.pass(4).await;
    assert_eq!(case.get().await, None);
}

/// Released and unknown records are kept for as long as their settlement says.
pub async fn released_and_unknown_records_expire_too(harness: &dyn Harness) {
    let (released, unsure) = (Case::new(harness), Case::new(harness));
    for (case, verdict) in [(&released, Verdict::Released), (&unsure, unknown("?"))] {
        let attempt = case.run().await;
        assert_eq!(case.settle_for(&attempt.id(), verdict, case.unit()).await, Settled::Applied);
    }
    released.pass(2).await;
    assert_eq!((released.get().await, unsure.get().await), (None, None));
}

/// An expired record is absent for every call, and the next attempt is a first one, with any payload.
pub async fn an_expired_record_counts_as_absent(harness: &dyn Harness) {
    let case = Case::new(harness);
    let first = case.run().await;
    assert_eq!(case.settle_for(&first.id(), completed("a"), case.unit()).await, Settled::Applied);
    case.pass(2).await;
    assert_eq!(case.get().await, None);
    assert_eq!(case.settle(&first.id(), completed("a")).await, Settled::Lost);
    assert_eq!(case.renew(&first.id(), LONG).await, Settled::Lost);
    assert_eq!(case.forget(first.fence).await, Settled::Lost);
    let other = Claim { fingerprint: super::case::payload("another payload"), ..case.claim() };
    let next = case.acquire(&other).await;
    assert_eq!((next.attempt, next.over), (1, Over::Nothing));
    assert!(next.fence > first.fence);
    assert_eq!(case.settle(&first.id(), completed("a")).await, Settled::Lost);
}

/// A record does not expire under an attempt that still runs.
pub async fn a_live_lease_outlasts_retention(harness: &dyn Harness) {
    let case = Case::new(harness);
    let attempt = case.acquire(&Claim { retain_unsettled: case.unit(), ..case.claim() }).await;
    case.pass(2).await;
    assert_eq!(case.kind().await, StateKind::Running);
    case.taken(&case.claim_over(Takeover::Allowed)).await;
    assert_eq!(case.renew(&attempt.id(), LONG).await, Settled::Applied);
    assert_eq!(case.settle(&attempt.id(), completed("late")).await, Settled::Applied);
    assert_eq!(case.kind().await, StateKind::Completed);
}

/// An attempt that ended without a word leaves a record: forgetting it with the lease would let it run twice.
pub async fn unsettled_records_outlive_their_lease(harness: &dyn Harness) {
    let case = Case::new(harness);
    let attempt = case.lapse().await;
    case.pass(2).await;
    let snapshot = case.snapshot().await;
    assert_eq!((snapshot.state.kind(), snapshot.fence), (StateKind::Lapsed, attempt.fence));
    assert_eq!(case.taken(&case.claim()).await.fence, attempt.fence);
}

/// A lapsed record is kept for the retention of its claim, and no longer.
pub async fn unsettled_records_expire_after_their_retention(harness: &dyn Harness) {
    let case = Case::new(harness);
    let claim = Claim { lease: case.unit(), retain_unsettled: case.unit() * 2, ..case.claim() };
    let lost = case.acquire(&claim).await;
    case.pass(3).await;
    assert_eq!(case.get().await, None);
    assert_eq!(case.settle(&lost.id(), completed("too late")).await, Settled::Lost);
    assert_eq!(case.run().await.over, Over::Nothing);
}

/// An attempt that begins over a released, unknown or lapsed one is kept for as long as its own claim says, be that longer or shorter
/// than what was left of the record: gone too early, the call would run again though nobody knows what became of it.
pub async fn a_later_attempt_is_kept_for_its_own_retention(harness: &dyn Harness) {
    let before = [Some(Verdict::Released), Some(unknown("?")), None];
    let cases = before.map(|verdict| (verdict, Case::new(harness), Case::new(harness)));
    let unit = harness.lease();
    for (verdict, longer, shorter) in &cases {
        for (case, retain) in [(longer, unit * 6), (shorter, KEPT)] {
            let lease = if verdict.is_some() { LONG } else { unit };
            let claim = Claim { lease, retain_unsettled: retain, ..case.claim() };
            let first = case.acquire(&claim).await;
            if let Some(verdict) = verdict.clone() {
                assert_eq!(case.settle_for(&first.id(), verdict, retain).await, Settled::Applied);
            }
        }
    }
    harness.pass(unit * 2).await;
    for (_, longer, shorter) in &cases {
        for (case, retain_unsettled) in [(longer, KEPT), (shorter, unit * 2)] {
            let claim = Claim { lease: unit, retain_unsettled, ..case.claim_over(Takeover::Allowed) };
            assert_eq!(case.acquire(&claim).await.attempt, 2);
        }
    }
    harness.pass(unit * 5).await;
    for (verdict, longer, shorter) in &cases {
        let snapshot = longer.get().await;
        let kind = snapshot.map(|snapshot| snapshot.state.kind());
        assert_eq!(kind, Some(StateKind::Lapsed), "after {verdict:?} it expired with the attempt before it");
        assert_eq!(shorter.get().await, None, "after {verdict:?} it was kept for the attempt before it");
    }
}
