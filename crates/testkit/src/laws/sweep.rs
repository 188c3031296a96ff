//! Giving back the room of expired records.

use onlyonce_core::{Claim, Settled, State, StateKind, Takeover, Verdict};

use super::case::{Case, LONG, answer, completed, ok, unknown};
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
    sweep_all(harness).await;
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

/// Sweeps until there is nothing left to sweep.
async fn sweep_all(harness: &dyn Harness) {
    let (store, mut batches) = (harness.store(), 0);
    while ok(store.sweep(BATCH).await) >= BATCH {
        batches += 1;
        assert!(batches < MOST_BATCHES, "there is no end to it");
    }
}

/// A sweep leaves a record whose lease is alive, however short its retention: by its first lease, by a renewal, or by that of
/// a later attempt. Without it the same call would run beside the attempt that still runs.
pub async fn a_sweep_leaves_a_live_lease_however_short_its_retention(harness: &dyn Harness) {
    let cases = [(); 3].map(|()| Case::new(harness));
    let [begun, renewed, begun_again] = &cases;
    let brief = |case: &Case<'_>| Claim { retain_unsettled: case.unit(), ..case.claim() };
    let first = begun.acquire(&brief(begun)).await;
    let second = renewed.acquire(&Claim { lease: renewed.unit() * 3, ..brief(renewed) }).await;
    assert_eq!(renewed.renew(&second.id(), LONG).await, Settled::Applied);
    begun_again.settled(Verdict::Released).await;
    let third = begun_again.acquire(&brief(begun_again)).await;
    begun.pass(4).await;

    sweep_all(harness).await;
    for (case, attempt) in cases.iter().zip([first, second, third]) {
        let snapshot = case.taken(&case.claim_over(Takeover::Allowed)).await;
        assert_eq!((snapshot.state.kind(), snapshot.fence), (StateKind::Running, attempt.fence));
        assert_eq!(case.settle(&attempt.id(), completed("late")).await, Settled::Applied);
        assert_eq!(case.state().await, State::Completed(answer("late")));
    }
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
    sweep_all(harness).await;
    assert_eq!(ok(harness.store().sweep(BATCH).await), 0, "some were left");
}
