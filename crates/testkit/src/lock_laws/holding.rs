//! Keeping a lock, and giving it back.

use onlyonce_core::Owner;
use onlyonce_core::lock::{Release, Renewed};

use super::{Case, LONG, LockHarness};

/// A renewal lets the lock be held for the given span from now, be that longer or shorter than before.
pub async fn a_renewal_counts_from_now<H: LockHarness>(harness: &H) {
    let (longer, shorter) = (Case::new(harness), Case::new(harness));
    let owner = longer.taken(longer.unit() * 2).await;
    assert_eq!(longer.renew(&owner, LONG).await, Renewed::Renewed);
    let owner = shorter.taken(LONG).await;
    assert_eq!(shorter.renew(&owner, shorter.unit()).await, Renewed::Renewed);
    longer.pass(3).await;
    assert!(!longer.takes(&Owner::random(), LONG).await);
    assert!(shorter.takes(&Owner::random(), LONG).await);
}

/// Only its owner renews a lock.
pub async fn only_its_owner_renews_a_lock<H: LockHarness>(harness: &H) {
    let case = Case::new(harness);
    let owner = case.taken(LONG).await;
    assert_eq!(case.renew(&Owner::random(), case.unit()).await, Renewed::Lost);
    case.pass(2).await;
    assert_eq!(case.renew(&owner, LONG).await, Renewed::Renewed, "another owner changed its time");
}

/// What has run out is lost, and is not revived by a renewal.
pub async fn a_lock_that_ran_out_is_not_renewed<H: LockHarness>(harness: &H) {
    let case = Case::new(harness);
    let late = case.taken(case.unit()).await;
    case.pass(2).await;
    assert_eq!(case.renew(&late, LONG).await, Renewed::Lost);
    case.taken(LONG).await;
}

/// A lock that was taken over is not renewed by its former owner.
pub async fn a_lock_that_was_taken_over_is_not_renewed<H: LockHarness>(harness: &H) {
    let case = Case::new(harness);
    let late = case.taken(case.unit()).await;
    case.pass(2).await;
    let owner = case.taken(LONG).await;
    assert_eq!(case.renew(&late, LONG).await, Renewed::Lost);
    assert_eq!(case.renew(&owner, LONG).await, Renewed::Renewed);
}

/// A release frees the lock at once.
pub async fn a_released_lock_is_free<H: LockHarness>(harness: &H) {
    let case = Case::new(harness);
    let owner = case.taken(LONG).await;
    assert_eq!(case.release(&owner).await, Release::Released);
    case.taken(LONG).await;
}

/// Repeating a release does no harm.
pub async fn a_repeated_release_finds_nothing<H: LockHarness>(harness: &H) {
    let case = Case::new(harness);
    let owner = case.taken(LONG).await;
    assert_eq!(case.release(&owner).await, Release::Released);
    assert_eq!(case.release(&owner).await, Release::AlreadyExpired);
    assert_eq!(case.renew(&owner, LONG).await, Renewed::Lost);
    case.taken(LONG).await;
}

/// A release after the ttl says so.
pub async fn a_release_of_what_ran_out_says_so<H: LockHarness>(harness: &H) {
    let case = Case::new(harness);
    let late = case.taken(case.unit()).await;
    case.pass(2).await;
    assert_eq!(case.release(&late).await, Release::AlreadyExpired);
}

/// A release by a former owner says so, and leaves the lock to who has it.
pub async fn a_release_by_a_former_owner_touches_nothing<H: LockHarness>(harness: &H) {
    let case = Case::new(harness);
    let late = case.taken(case.unit()).await;
    case.pass(2).await;
    let owner = case.taken(LONG).await;
    assert_eq!(case.release(&late).await, Release::TakenOver);
    assert!(!case.takes(&Owner::random(), LONG).await);
    assert_eq!(case.release(&owner).await, Release::Released);
}
