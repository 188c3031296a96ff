//! Waiting for a change. A wait may end early, so these laws say only when it must have ended.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Fence, Revision, Settled, Takeover, Verdict};
use tokio::task::JoinHandle;

use super::case::{Case, LONG, completed, unknown};
use crate::harness::Harness;

/// Real time within which a waiter must have heard of a change; generous, because machines stall.
const SOON: Duration = Duration::from_secs(5);
/// Real time in which a waiter gets to its wait.
const ENLISTS: Duration = Duration::from_millis(50);

/// A waiter hears that the attempt it waits for was settled, in whatever way.
pub async fn a_waiter_is_woken_by_settle(harness: &dyn Harness) {
    for verdict in [completed("a"), Verdict::Released, unknown("?")] {
        let case = Case::new(harness);
        let attempt = case.run().await;
        let waiters = wait(&case).await;
        assert_eq!(case.settle(&attempt.id(), verdict).await, Settled::Applied);
        woken(waiters).await;
    }
}

/// A waiter hears that another attempt took the record.
pub async fn a_waiter_is_woken_by_takeover(harness: &dyn Harness) {
    let case = Case::new(harness);
    case.settled(unknown("?")).await;
    let waiters = wait(&case).await;
    case.acquire(&case.claim_over(Takeover::Allowed)).await;
    woken(waiters).await;
}

/// A waiter hears that the record was deleted.
pub async fn a_waiter_is_woken_by_forget(harness: &dyn Harness) {
    let case = Case::new(harness);
    let attempt = case.settled(completed("a")).await;
    let waiters = wait(&case).await;
    assert_eq!(case.forget(attempt.fence).await, Settled::Applied);
    woken(waiters).await;
}

async fn wait(case: &Case<'_>) -> [JoinHandle<()>; 3] {
    let seen = case.snapshot().await.revision();
    let waiters = [LONG; 3].map(|timeout| spawn(case, seen, timeout));
    tokio::time::sleep(ENLISTS).await;
    waiters
}

fn spawn(case: &Case<'_>, seen: Revision, timeout: Duration) -> JoinHandle<()> {
    let (store, id) = (Arc::clone(&case.store), case.id);
    tokio::spawn(async move { store.changed(&id, seen, timeout).await })
}

async fn woken(waiters: [JoinHandle<()>; 3]) {
    for waiter in waiters {
        let heard = tokio::time::timeout(SOON, waiter).await;
        heard.expect("the change woke nobody").expect("waiting does not panic");
    }
}

/// What has changed before the wait begins ends it at once: nothing is missed between a look and the wait.
pub async fn changed_returns_at_once_if_already_changed(harness: &dyn Harness) {
    let case = Case::new(harness);
    let attempt = case.run().await;
    let running = case.snapshot().await.revision();
    assert_eq!(case.settle(&attempt.id(), Verdict::Released).await, Settled::Applied);
    let released = case.snapshot().await.revision();
    case.run().await;
    let absent = Case::new(harness);
    let never = Revision { fence: Fence(1), settled: false };
    for (case, seen) in [(&case, running), (&case, released), (&absent, never)] {
        let ended = tokio::time::timeout(SOON, case.store.changed(&case.id, seen, LONG)).await;
        assert!(ended.is_ok(), "waits for a change that was there before: {seen:?}");
    }
}

/// A wait for what does not change ends with its time-out.
pub async fn changed_respects_its_timeout(harness: &dyn Harness) {
    let case = Case::new(harness);
    case.run().await;
    let seen = case.snapshot().await.revision();
    let waiter = spawn(&case, seen, case.unit());
    tokio::time::sleep(ENLISTS).await;
    // Several times, because where time is moved by hand the waiter may have begun late.
    for _ in 0..20 {
        case.pass(1).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        if waiter.is_finished() {
            return;
        }
    }
    panic!("still waiting after twenty times its time-out");
}
