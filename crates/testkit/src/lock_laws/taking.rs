//! Who is granted a lock.

use std::sync::Arc;

use onlyonce_core::Owner;
use onlyonce_core::lock::Acquired;

use super::{Case, LONG, LockHarness};

/// Of many owners at once, exactly one is granted a lock that is in one place.
pub async fn exactly_one_of_many_acquires_is_granted<H: LockHarness>(harness: &H) {
    let granted = race(&Case::new(harness)).await;
    assert_eq!(granted, 1, "{granted} owners have it at once");
}

/// Of many owners at once, no two are granted a lock; where it is taken in several places at once rivals may undo each other, and
/// then nobody has it.
pub async fn no_two_of_many_acquires_are_granted<H: LockHarness>(harness: &H) {
    let case = Case::new(harness);
    let granted = race(&case).await;
    assert!(granted <= 1, "{granted} owners have it at once");
    if granted == 0 {
        assert!(case.takes(&Owner::random(), LONG).await, "rivals left something behind");
    }
}

/// How many of them were granted the lock.
async fn race<H: LockHarness>(case: &Case<'_, H>) -> u32 {
    let rivals: Vec<_> = (0..16)
        .map(|_| {
            let (backend, name) = (Arc::clone(&case.backend), case.name.clone());
            tokio::spawn(async move {
                let granted = backend.acquire(&name, &Owner::random(), LONG).await;
                matches!(granted.expect("a backend that answers"), Acquired::Granted(_))
            })
        })
        .collect();
    let mut granted = 0;
    for rival in rivals {
        granted += u32::from(rival.await.expect("no panic"));
    }
    granted
}

/// A lock that somebody has is taken, and its rest of time is known.
pub async fn a_held_lock_is_taken_and_says_for_how_long<H: LockHarness>(harness: &H) {
    let case = Case::new(harness);
    case.taken(LONG).await;
    match case.acquire(&Owner::random(), LONG).await {
        Acquired::Taken { free_in: Some(left) } => assert!(left > LONG / 2 && left <= LONG, "{left:?}"),
        other => panic!("{other:?}"),
    }
}

/// An acquire whose answer was lost is repeated: it is its owner's, for the ttl of the repeat.
pub async fn a_repeated_acquire_is_granted_and_renews<H: LockHarness>(harness: &H) {
    let case = Case::new(harness);
    let owner = case.taken(case.unit()).await;
    assert!(case.takes(&owner, LONG).await, "the owner is not recognised");
    case.pass(2).await;
    assert!(!case.takes(&Owner::random(), LONG).await, "the repeat did not renew");
}

/// After its ttl a lock is free.
pub async fn a_lock_that_ran_out_is_free<H: LockHarness>(harness: &H) {
    let case = Case::new(harness);
    case.taken(case.unit()).await;
    case.pass(2).await;
    case.taken(LONG).await;
}

/// Locks of different names do not touch each other, whatever is in the names.
pub async fn locks_of_different_names_do_not_touch_each_other<H: LockHarness>(harness: &H) {
    let salt = format!("{:016x}", rand::random::<u64>());
    let long = "x".repeat(255 - salt.len());
    let names = ["a", "A", "a b", "{a}", "}{", "é", "a\0b", "a\nb", "*", ":", &long];
    for name in names {
        let case = Case::named(harness, &format!("{salt}{name}"));
        let owner = case.taken(LONG).await;
        assert!(!case.takes(&Owner::random(), LONG).await, "{name:?}");
        // Held until all are.
        let _ = owner;
    }
}
