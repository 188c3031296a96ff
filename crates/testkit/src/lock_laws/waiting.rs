//! Hearing that a lock is free.

use std::sync::Arc;
use std::time::Duration;

use super::{Case, LONG, LockHarness};

/// Far longer than any server takes.
const PATIENCE: Duration = Duration::from_secs(30);

async fn in_time(what: &str, future: impl Future<Output = ()>) {
    assert!(tokio::time::timeout(PATIENCE, future).await.is_ok(), "{what}");
}

/// Who waits hears of a release.
pub async fn a_waiter_is_woken_by_a_release<H: LockHarness>(harness: &H) {
    let case = Case::new(harness);
    let owner = case.taken(LONG).await;
    let (backend, name) = (Arc::clone(&case.backend), case.name.clone());
    let waiter = tokio::spawn(async move { backend.freed(&name, LONG).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    case.release(&owner).await;
    in_time("the release was not heard of", async { waiter.await.expect("no panic") }).await;
}

/// A release that came before the wait is not waited for.
pub async fn a_free_lock_is_not_waited_for<H: LockHarness>(harness: &H) {
    let case = Case::new(harness);
    let owner = case.taken(LONG).await;
    case.release(&owner).await;
    in_time("a free lock was waited for", case.backend.freed(&case.name, LONG)).await;
}

/// A wait ends when the lock runs out.
pub async fn a_wait_ends_when_the_lock_runs_out<H: LockHarness>(harness: &H) {
    let case = Case::new(harness);
    case.taken(case.unit()).await;
    let (backend, name) = (Arc::clone(&case.backend), case.name.clone());
    let waiter = tokio::spawn(async move { backend.freed(&name, LONG).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    case.pass(2).await;
    in_time("the end of the ttl was not noticed", async { waiter.await.expect("no panic") }).await;
}

/// A wait ends after its time.
pub async fn a_wait_ends_after_its_time<H: LockHarness>(harness: &H) {
    let case = Case::new(harness);
    case.taken(LONG).await;
    let (backend, name, unit) = (Arc::clone(&case.backend), case.name.clone(), case.unit());
    let waiter = tokio::spawn(async move { backend.freed(&name, unit).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    case.pass(2).await;
    in_time("the time was over", async { waiter.await.expect("no panic") }).await;
}
