//! Fences only rise.

use onlyonce_core::{Claim, Settled, Takeover, Verdict};

use super::case::{Case, completed, unknown};
use crate::harness::Harness;

/// Every attempt at a record has a higher fence than all before it, whatever became of the record in between.
pub async fn fences_rise_over_release_takeover_expiry_and_forget(harness: &dyn Harness) {
    let case = Case::new(harness);
    let mut fences = Vec::new();

    let attempt = case.settled(Verdict::Released).await;
    fences.push(attempt.fence);
    let attempt = case.settled(unknown("?")).await;
    fences.push(attempt.fence);
    let claim = Claim { lease: case.unit(), ..case.claim_over(Takeover::Seen(attempt.fence)) };
    fences.push(case.acquire(&claim).await.fence);
    case.pass(2).await;
    let attempt = case.acquire(&case.claim_over(Takeover::Allowed)).await;
    fences.push(attempt.fence);
    assert_eq!(case.settle_for(&attempt.id(), completed("a"), case.unit()).await, Settled::Applied);
    case.pass(2).await;
    // Deleted and begun again at once, several times: no time passes by which the fence could rise on its own.
    for _ in 0..5 {
        let attempt = case.settled(completed("b")).await;
        fences.push(attempt.fence);
        assert_eq!(case.forget(attempt.fence).await, Settled::Applied);
    }
    fences.push(case.run().await.fence);
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "fences fell: {fences:?}");
}
