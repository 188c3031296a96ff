//! The number that tells holders apart.

use onlyonce_core::lock::{Acquired, Release};
use onlyonce_core::{Fence, Owner};

use super::{Case, LONG, LockHarness};

async fn fence<H: LockHarness<Proof = Fence>>(
    case: &Case<'_, H>,
    owner: &Owner,
    ttl: std::time::Duration,
) -> Fence {
    match case.acquire(owner, ttl).await {
        Acquired::Granted(fence) => fence,
        taken @ Acquired::Taken { .. } => panic!("{taken:?}"),
    }
}

/// Every holder has a higher fence than all before, whether they released the lock or lost it.
pub async fn fences_rise_over_release_and_expiry<H: LockHarness<Proof = Fence>>(harness: &H) {
    let case = Case::new(harness);
    let first = Owner::random();
    let mut last = fence(&case, &first, LONG).await;
    assert_eq!(case.release(&first).await, Release::Released);
    for _ in 0..3 {
        let next = fence(&case, &Owner::random(), case.unit()).await;
        assert!(next > last, "{next} after {last}");
        last = next;
        case.pass(2).await;
    }
}

/// A repeat by the owner does not get a lower one.
pub async fn a_repeated_acquire_has_no_lower_fence<H: LockHarness<Proof = Fence>>(harness: &H) {
    let case = Case::new(harness);
    let owner = Owner::random();
    let first = fence(&case, &owner, LONG).await;
    assert!(fence(&case, &owner, LONG).await >= first);
}
