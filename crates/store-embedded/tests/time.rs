//! The wall clock is set, the process is started again, the machine is: records are kept for the time that really passes.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::path::Path;
use std::time::Duration;

use common::*;
use onlyonce_core::{Begin, Inspect, StateKind, Store, Verdict};
use onlyonce_store_embedded::EmbeddedStore;

const DAY: Duration = Duration::from_secs(24 * 3600);
const MINUTE: Duration = Duration::from_secs(60);

fn open_at(path: &Path, clock: &TwoClocks) -> EmbeddedStore {
    EmbeddedStore::builder(path).with_clock(clock.clone()).open().unwrap()
}

/// What a retry of call `n` is told.
async fn is_known(store: &EmbeddedStore, n: u64) -> bool {
    matches!(store.begin(&id(n), &claim()).await.unwrap(), Begin::Taken(_))
}

#[tokio::test]
async fn a_clock_that_is_set_forward_makes_no_answered_call_run_again() {
    let directory = tempfile::tempdir().unwrap();
    for is_running in [true, false] {
        let clock = TwoClocks::machine();
        let path = directory.path().join(is_running.to_string());
        let mut store = open_at(&path, &clock);
        complete(&store, 1).await.unwrap();
        let unknown = begin(&store, 2).await.unwrap();
        settle(&store, 2, &unknown, Verdict::Unknown(answer(2))).await.unwrap();
        if is_running {
            clock.set_wall_forward(400 * DAY);
        } else {
            drop(store);
            clock.set_wall_forward(400 * DAY);
            store = open_at(&path, &clock);
        }
        assert!(is_known(&store, 1).await && is_known(&store, 2).await);
        assert_eq!(store.sweep(10).await.unwrap(), 0);
        assert_eq!(show(&store, 1).await, Shown::AsAcknowledged);
        assert_eq!(store.count().await.unwrap(), [(StateKind::Completed, 1), (StateKind::Lapsed, 1)].into());
        // What comes later is kept as always.
        clock.pass(MINUTE);
        complete(&store, 3).await.unwrap();
        clock.pass(HOUR);
        assert!(store.get(&id(3)).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn after_a_clock_that_was_set_forward_nothing_older_expires_for_one_more_retention() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::machine();
    let store = open_at(directory.path(), &clock);
    complete(&store, 1).await.unwrap();
    clock.pass(HOUR - MINUTE);
    clock.set_wall_forward(DAY);
    assert!(is_known(&store, 1).await);
    clock.pass(HOUR - MINUTE);
    assert_eq!(store.sweep(10).await.unwrap(), 0);
    drop(store);
    // It is noted: also the next process knows.
    let store = open_at(directory.path(), &clock);
    assert_eq!(show(&store, 1).await, Shown::AsAcknowledged);
    assert_eq!(store.sweep(10).await.unwrap(), 0);
    clock.pass(2 * MINUTE);
    assert_eq!(store.get(&id(1)).await.unwrap(), None);
    assert_eq!(store.sweep(10).await.unwrap(), 1);
    assert_eq!(store.count().await.unwrap(), [].into());
}

#[tokio::test]
async fn with_a_sane_clock_and_daily_restarts_everything_expires_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::machine();
    for day in 0..5 {
        let store = open_at(directory.path(), &clock);
        if day > 0 {
            // What was completed yesterday, an hour before the end of the day.
            assert_eq!(store.get(&id(day - 1)).await.unwrap(), None);
            assert_eq!(store.sweep(10).await.unwrap(), 1);
        }
        clock.pass(DAY - HOUR);
        complete(&store, day).await.unwrap();
        clock.pass(HOUR / 2);
        assert_eq!(show(&store, day).await, Shown::AsAcknowledged);
        drop(store);
        clock.pass(HOUR / 2);
        if day == 3 {
            clock.boot_again();
        }
    }
}

#[tokio::test]
async fn a_clock_that_is_set_back_keeps_nothing_for_longer() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::machine();
    let store = open_at(directory.path(), &clock);
    complete(&store, 1).await.unwrap();
    clock.set_wall_back(300 * DAY);
    assert!(is_known(&store, 1).await);
    clock.pass(HOUR - MINUTE);
    assert!(is_known(&store, 1).await);
    drop(store);
    clock.set_wall_back(DAY);
    clock.pass(MINUTE);
    let store = open_at(directory.path(), &clock);
    assert_eq!(store.get(&id(1)).await.unwrap(), None);
}

#[tokio::test]
async fn a_boot_with_a_wrong_clock_makes_no_answered_call_run_again() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::machine();
    let store = open_at(directory.path(), &clock);
    let first = begin(&store, 1).await.unwrap();
    let how = onlyonce_core::Settlement { verdict: Verdict::Completed(answer(1)), retain: DAY };
    store.settle(&id(1), &first, &how).await.unwrap();
    drop(store);
    clock.boot_again();
    clock.set_wall_forward(400 * DAY);
    let store = open_at(directory.path(), &clock);
    assert_eq!(show(&store, 1).await, Shown::AsAcknowledged);
    clock.pass(DAY);
    assert_eq!(store.get(&id(1)).await.unwrap(), None);
}

#[tokio::test]
async fn the_time_goes_on_from_the_last_note_after_a_boot() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::machine();
    let store = open_at(directory.path(), &clock);
    // Nobody writes for hours, but the engine sweeps.
    for _ in 0..5 * 60 {
        clock.pass(MINUTE);
        store.sweep(1).await.unwrap();
    }
    complete(&store, 1).await.unwrap();
    drop(store);
    clock.pass(HOUR / 2);
    clock.boot_again();
    let store = open_at(directory.path(), &clock);
    assert_eq!(show(&store, 1).await, Shown::AsAcknowledged);
    clock.pass(HOUR / 2);
    assert_eq!(store.get(&id(1)).await.unwrap(), None);
}

#[tokio::test]
async fn a_clock_that_is_set_again_and_again_keeps_nothing_for_more_than_twice_its_retention() {
    let directory = tempfile::tempdir().unwrap();
    let clock = TwoClocks::machine();
    let store = open_at(directory.path(), &clock);
    for hour in 0..6 {
        complete(&store, hour).await.unwrap();
        for _ in 0..6 {
            clock.pass(10 * MINUTE);
            // As a machine that is paused does, whose clock is put right afterwards.
            clock.set_wall_forward(10 * MINUTE);
            store.sweep(10).await.unwrap();
        }
        let kept = store.count().await.unwrap().values().sum::<u64>();
        assert!(kept <= 2, "{kept} after hour {hour}");
    }
}
