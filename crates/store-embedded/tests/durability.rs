//! What survives the end of a process, and what time does to it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use onlyonce_core::{
    AttemptId, Begin, Claim, ErrorKind, Inspect, ManualClock, Over, Settled, Settlement, State, StateKind,
    Store, Takeover, Verdict,
};
use onlyonce_store_embedded::EmbeddedStore;

fn with_clock(path: &std::path::Path, clock: &TwoClocks) -> EmbeddedStore {
    EmbeddedStore::builder(path).with_clock(clock.clone()).open().unwrap()
}

#[tokio::test]
async fn every_state_reads_the_same_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::new();
    let store = with_clock(directory.path(), &clock);
    complete(&store, 1).await.unwrap();
    let released = begin(&store, 2).await.unwrap();
    settle(&store, 2, &released, Verdict::Released).await.unwrap();
    let unknown = begin(&store, 3).await.unwrap();
    settle(&store, 3, &unknown, Verdict::Unknown(answer(3))).await.unwrap();
    let mut before = Vec::new();
    for n in 1..=3 {
        before.push(store.get(&id(n)).await.unwrap().unwrap());
    }
    drop(store);
    let store = with_clock(directory.path(), &clock);
    for (n, before) in (1..).zip(before) {
        assert_eq!(store.get(&id(n)).await.unwrap().unwrap(), before);
    }
}

#[tokio::test]
async fn what_ran_in_a_former_process_has_lapsed_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::new();
    let store = with_clock(directory.path(), &clock);
    let old = begin(&store, 1).await.unwrap();
    drop(store);
    clock.pass(Duration::from_secs(2));
    let store = with_clock(directory.path(), &clock);
    clock.pass(Duration::from_secs(1));
    let found = store.get(&id(1)).await.unwrap().unwrap();
    assert!(
        matches!(found.state, State::Lapsed { since, .. } if since == Duration::from_secs(1)),
        "{found:?}"
    );
    assert_eq!(store.renew(&id(1), &old, HOUR).await.unwrap(), Settled::Lost);
    assert!(matches!(store.begin(&id(1), &claim()).await.unwrap(), Begin::Taken(_)));
    assert_eq!(store.lapsed(10).await.unwrap().len(), 1);
    let taken = Claim { takeover: Takeover::Allowed, ..claim() };
    let begun = store.begin(&id(1), &taken).await.unwrap();
    assert!(matches!(begun, Begin::Acquired { over: Over::Lapsed, attempt: 2, .. }), "{begun:?}");
    let zombie = Settlement { verdict: Verdict::Released, retain: HOUR };
    assert_eq!(store.settle(&id(1), &old, &zombie).await.unwrap(), Settled::Lost);
}

#[tokio::test]
async fn a_fence_never_falls_over_forget_restart_and_a_clock_set_back() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::new();
    let mut last = onlyonce_core::Fence(0);
    for _ in 0..5 {
        let store = with_clock(directory.path(), &clock);
        for _ in 0..3 {
            let fence = complete(&store, 1).await.unwrap();
            assert!(fence > last, "{fence} after {last}");
            last = fence;
            assert_eq!(store.forget(&id(1), fence).await.unwrap(), Settled::Applied);
        }
        drop(store);
        clock.set_wall_back(HOUR);
    }
}

#[tokio::test]
async fn expiry_goes_on_while_no_process_runs() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::new();
    let store = with_clock(directory.path(), &clock);
    complete(&store, 1).await.unwrap();
    begin(&store, 2).await.unwrap();
    drop(store);
    clock.set_wall_forward(HOUR);
    let store = with_clock(directory.path(), &clock);
    assert_eq!(store.get(&id(1)).await.unwrap(), None);
    assert_eq!(store.count().await.unwrap(), [(StateKind::Lapsed, 1)].into());
    assert_eq!(store.sweep(10).await.unwrap(), 1);
    clock.pass(24 * HOUR);
    assert_eq!(store.count().await.unwrap(), [].into());
    assert_eq!(store.sweep(10).await.unwrap(), 1);
    assert_eq!(store.sweep(10).await.unwrap(), 0);
}

#[tokio::test]
async fn a_wall_clock_that_is_set_moves_no_lease() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::new();
    let store = with_clock(directory.path(), &clock);
    let attempt = begin(&store, 1).await.unwrap();
    for change in [TwoClocks::set_wall_forward, TwoClocks::set_wall_back, TwoClocks::set_wall_back] {
        change(&clock, HOUR);
        let found = store.get(&id(1)).await.unwrap().unwrap();
        assert_eq!(found.state, State::Running { lease_left: Duration::from_secs(30) });
    }
    assert_eq!(store.renew(&id(1), &attempt, Duration::from_secs(60)).await.unwrap(), Settled::Applied);
    clock.steady.advance(Duration::from_secs(60));
    assert_eq!(store.get(&id(1)).await.unwrap().unwrap().state.kind(), StateKind::Lapsed);
}

#[tokio::test]
async fn a_renewed_lease_outlives_the_retention_and_the_sweep() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::new();
    let store = with_clock(directory.path(), &clock);
    let short = Claim { retain_unsettled: Duration::from_secs(40), ..claim() };
    let Begin::Acquired { fence, .. } = store.begin(&id(1), &short).await.unwrap() else { panic!() };
    let attempt = AttemptId { owner: short.owner, fence: Some(fence) };
    for _ in 0..3 {
        clock.pass(Duration::from_secs(20));
        assert_eq!(store.renew(&id(1), &attempt, Duration::from_secs(30)).await.unwrap(), Settled::Applied);
        assert_eq!(store.sweep(10).await.unwrap(), 0);
    }
    assert_eq!(store.get(&id(1)).await.unwrap().unwrap().state.kind(), StateKind::Running);
    clock.pass(Duration::from_secs(30));
    assert_eq!(store.get(&id(1)).await.unwrap(), None);
    assert_eq!(store.sweep(10).await.unwrap(), 1);
}

#[tokio::test]
async fn what_is_open_is_found_again_and_counted_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::new();
    for round in 0..3 {
        let store = Arc::new(with_clock(directory.path(), &clock));
        let begun = begin_together(&store, round * 10..round * 10 + 10).await;
        // Most of a list leaves it, so that it is rewritten.
        for (n, attempt) in (round * 10..).zip(&begun).skip(2) {
            settle(&*store, n, attempt, Verdict::Completed(answer(n))).await.unwrap();
        }
        clock.pass(Duration::from_secs(1));
    }
    let store = with_clock(directory.path(), &clock);
    let counts = [(StateKind::Lapsed, 6), (StateKind::Completed, 24)].into();
    assert_eq!(store.count().await.unwrap(), counts);
    let lapsed: Vec<_> = store.lapsed(2).await.unwrap().into_iter().map(|listed| listed.id).collect();
    assert!(lapsed.contains(&id(0)) && lapsed.contains(&id(1)), "{lapsed:?}");
}

/// Begins at the same time, so that some share a batch and its list.
async fn begin_together(store: &Arc<EmbeddedStore>, records: std::ops::Range<u64>) -> Vec<AttemptId> {
    let tasks: Vec<_> = records
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { begin(&*store, n).await.unwrap() })
        })
        .collect();
    let mut begun = Vec::new();
    for task in tasks {
        begun.push(task.await.unwrap());
    }
    begun
}

#[tokio::test]
async fn sweeps_of_any_size_go_through_all_that_has_expired() {
    for limit in [1, 7, 1024, 5_000] {
        let directory = tempfile::tempdir().unwrap();
        let clock = TwoClocks::new();
        let store = Arc::new(with_clock(directory.path(), &clock));
        for start in [0, 20, 40] {
            let begun = begin_together(&store, start..start + 20).await;
            for (n, attempt) in (start..).zip(&begun).skip(5) {
                settle(&*store, n, attempt, Verdict::Completed(answer(n))).await.unwrap();
            }
            clock.pass(Duration::from_micros(1));
        }
        complete(&*store, 99).await.unwrap();
        // The completed ones first, then those that never were.
        for (passes, expired) in [(HOUR - Duration::from_micros(1), 45), (HOUR, 1), (24 * HOUR, 15)] {
            clock.pass(passes);
            let mut swept = Vec::new();
            while swept.last().is_none_or(|swept| *swept == limit) {
                swept.push(store.sweep(limit).await.unwrap());
            }
            assert_eq!(swept.iter().sum::<u32>(), expired, "{swept:?}");
        }
        assert_eq!(store.count().await.unwrap(), [].into());
    }
}

#[tokio::test]
async fn many_callers_share_the_writer_and_each_gets_its_own_answer() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::builder(directory.path()).queue(4).open().unwrap());
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 0..10 {
                    complete(&*store, task * 10 + n).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    drop(store);
    let store = open(directory.path());
    for n in 0..640 {
        assert_eq!(show(&store, n).await, Shown::AsAcknowledged);
    }
}

#[tokio::test]
async fn a_closed_store_has_answered_what_was_queued_and_refuses_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open(directory.path()));
    let queued: Vec<_> = (0..20)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { complete(&*store, n).await })
        })
        .collect();
    tokio::task::yield_now().await;
    store.close().await;
    store.close().await;
    for task in queued {
        if let Err(refused) = task.await.unwrap() {
            assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
        }
    }
    assert_eq!(begin(&*store, 99).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(store.get(&id(99)).await.unwrap(), None);
    drop(store);
    assert_eq!(open(directory.path()).get(&id(99)).await.unwrap(), None);
}

#[tokio::test]
async fn a_full_store_refuses_new_records_until_old_ones_expire() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let builder = EmbeddedStore::builder(directory.path()).with_clock(clock.clone()).max_records(3);
    let store = builder.open().unwrap();
    for n in 0..3 {
        complete(&store, n).await.unwrap();
    }
    let refused = begin(&store, 9).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    let why = std::error::Error::source(&refused).unwrap().to_string();
    assert!(why.contains("3 records") && why.contains("raise max_records"), "{why}");
    clock.advance(HOUR);
    complete(&store, 9).await.unwrap();
    assert_eq!(store.count().await.unwrap(), [(StateKind::Completed, 1)].into());
}

#[tokio::test]
async fn a_nearly_full_disk_refuses_new_records_but_takes_settlements() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let attempt = begin(&store, 1).await.unwrap();
    drop(store);
    let store = EmbeddedStore::builder(directory.path()).keep_free(u64::MAX).open().unwrap();
    let refused = begin(&store, 2).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(std::error::Error::source(&refused).unwrap().to_string().contains("free space"), "{refused:?}");
    settle(&store, 1, &attempt, Verdict::Completed(answer(1))).await.unwrap();
    assert_eq!(show(&store, 1).await, Shown::AsAcknowledged);
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_rejected_and_the_call_can_still_be_settled() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::builder(directory.path()).max_answer_bytes(60).open().unwrap();
    let attempt = begin(&store, 7).await.unwrap();
    let how = Settlement { verdict: Verdict::Completed(answer(7)), retain: HOUR };
    assert_eq!(store.settle(&id(7), &attempt, &how).await.unwrap_err().kind(), ErrorKind::Rejected);
    settle(&store, 7, &attempt, Verdict::Released).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disk_use_follows_what_is_alive() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::new();
    let builder = EmbeddedStore::builder(directory.path()).with_clock(clock.clone()).buffer_bytes(1 << 20);
    let store = Arc::new(builder.open().unwrap());
    let tasks: Vec<_> = (0..256)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in (task..12_000).step_by(256) {
                    complete(&*store, n).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let tables = directory.path().join("engine/keyspaces");
    let full = disk_bytes(&tables);
    assert!(full > 8 << 20, "only {full} bytes");
    clock.pass(HOUR);
    for n in 20_000..20_100 {
        complete(&*store, n).await.unwrap();
    }
    assert_eq!(store.sweep(u32::MAX).await.unwrap(), 12_000);
    // Room is reclaimed in the background.
    for _ in 0..200 {
        if disk_bytes(&tables) < full / 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let left = disk_bytes(&tables);
    assert!(left < full / 3, "{left} of {full} bytes are left");
    for n in 20_000..20_100 {
        assert_eq!(show(&*store, n).await, Shown::AsAcknowledged);
    }
}

/// Calls that complete and are forgotten leave an entry in a list of what expires.
async fn complete_and_forget(store: &Arc<EmbeddedStore>, records: std::ops::Range<u64>) {
    let begun = begin_together(store, records.clone()).await;
    let tasks: Vec<_> = records
        .zip(begun)
        .map(|(n, attempt)| {
            let store = store.clone();
            tokio::spawn(async move {
                settle(&*store, n, &attempt, Verdict::Completed(answer(n))).await.unwrap();
                let forgotten = store.forget(&id(n), attempt.fence.unwrap()).await.unwrap();
                assert_eq!(forgotten, Settled::Applied);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_that_says_none_is_left_has_left_none() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::new();
    let store = Arc::new(with_clock(directory.path(), &clock));
    complete_and_forget(&store, 0..1_500).await;
    for n in 10_000..10_020 {
        complete(&*store, n).await.unwrap();
    }
    clock.pass(HOUR);
    assert_eq!(store.sweep(1_000_000).await.unwrap(), 20);
    assert_eq!(store.sweep(1_000_000).await.unwrap(), 0);
    // In parts that are smaller than what is stale between them.
    complete_and_forget(&store, 0..300).await;
    for n in 10_000..10_005 {
        complete(&*store, n).await.unwrap();
    }
    clock.pass(HOUR);
    for swept in [2, 2, 1, 0] {
        assert_eq!(store.sweep(2).await.unwrap(), swept);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_store_finds_what_has_expired_behind_what_is_stale() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::new();
    let builder = EmbeddedStore::builder(directory.path()).with_clock(clock.clone()).max_records(300);
    let store = Arc::new(builder.open().unwrap());
    complete_and_forget(&store, 0..250).await;
    for n in 1_000..1_300 {
        complete(&*store, n).await.unwrap();
    }
    assert_eq!(begin(&*store, 9_999).await.unwrap_err().kind(), ErrorKind::Unavailable);
    clock.pass(HOUR);
    complete(&*store, 9_999).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_goes_past_calls_that_run_beyond_their_retention() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::new();
    let store = Arc::new(with_clock(directory.path(), &clock));
    let tasks: Vec<_> = (0..1_100)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move {
                // The last five die, and are kept for a little longer.
                let retain = if n < 1_095 { 40 } else { 41 };
                let claim = Claim { retain_unsettled: Duration::from_secs(retain), ..claim() };
                let Begin::Acquired { fence, .. } = store.begin(&id(n), &claim).await.unwrap() else {
                    panic!()
                };
                AttemptId { owner: claim.owner, fence: Some(fence) }
            })
        })
        .collect();
    let mut begun = Vec::new();
    for task in tasks {
        begun.push(task.await.unwrap());
    }
    clock.pass(Duration::from_secs(20));
    for (n, attempt) in (0..).zip(&begun).take(1_095) {
        assert_eq!(store.renew(&id(n), attempt, HOUR).await.unwrap(), Settled::Applied);
    }
    clock.pass(Duration::from_secs(25));
    for swept in [3, 2, 0] {
        assert_eq!(store.sweep(3).await.unwrap(), swept);
    }
    assert_eq!(store.count().await.unwrap(), [(StateKind::Running, 1_095)].into());
    clock.pass(2 * HOUR);
    assert_eq!(store.sweep(10_000).await.unwrap(), 1_095);
}
