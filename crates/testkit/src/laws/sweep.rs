//! Giving back the room of expired records.

use onlyonce_core::{Claim, Settled, StateKind, Verdict};

use super::case::{Case, LONG, completed, ok, unknown};
use crate::harness::Harness;

const EXPIRED: usize = 5;
const BATCH: u32 = 500;
const MOST_BATCHES: u32 = 10_000;

/// A sweep deletes at most as many as it may, and never a record that runs, is completed, released, unknown or lapsed
/// within its retention. It ends: at some time it finds fewer than it may delete.
///
/// A store whose server removes expired records by itself has nothing to sweep, and says 0.
pub async fn sweep_removes_only_expired_records_and_respects_its_limit(harness: &dyn Harness) {
    let expired: Vec<_> = (0..EXPIRED).map(|_| Case::new(harness)).collect();
    for case in &expired {
        let attempt = case.run().await;
        assert_eq!(case.settle_for(&attempt.id(), completed("a"), case.unit()).await, Settled::Applied);
    }
    let live: Vec<_> = (0..5).map(|_| Case::new(harness)).collect();
    let [running, lapsed, done, released, unsure] = &live[..] else { unreachable!("five were made") };
    running.run().await;
    lapsed.acquire(&Claim { lease: lapsed.unit(), ..lapsed.claim() }).await;
    done.settled(completed("b")).await;
    released.settled(Verdict::Released).await;
    unsure.settled(unknown("?")).await;
    running.pass(2).await;

    let store = harness.store();
    assert!(ok(store.sweep(2).await) <= 2, "it deleted more than it may");
    assert_eq!(ok(store.sweep(0).await), 0);
    let mut batches = 0;
    while ok(store.sweep(BATCH).await) >= BATCH {
        batches += 1;
        assert!(batches < MOST_BATCHES, "there is no end to it");
    }
    for case in &expired {
        assert_eq!(case.get().await, None);
    }
    let mut kinds = Vec::new();
    for case in &live {
        kinds.push(case.kind().await);
    }
    let [running, lapsed, done, released] =
        [StateKind::Running, StateKind::Lapsed, StateKind::Completed, StateKind::Released];
    assert_eq!(kinds, [running, lapsed, done, released, lapsed]);
}

/// A sweep that deletes fewer than it may has left none, however often the records changed before they expired.
pub async fn a_sweep_that_finds_fewer_than_it_may_leaves_none(harness: &dyn Harness) {
    const CHANGES: u32 = 20;
    let expired: Vec<_> = (0..EXPIRED).map(|_| Case::new(harness)).collect();
    for case in &expired {
        let attempt = case.run().await;
        for _ in 0..CHANGES {
            assert_eq!(case.renew(&attempt.id(), LONG).await, Settled::Applied);
        }
        assert_eq!(case.settle_for(&attempt.id(), completed("a"), case.unit()).await, Settled::Applied);
    }
    expired[0].pass(2).await;
    let store = harness.store();
    while ok(store.sweep(BATCH).await) >= BATCH {}
    assert_eq!(ok(store.sweep(BATCH).await), 0, "some were left");
}
