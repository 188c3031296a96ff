//! Calls that nobody waits for any more.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use onlyonce_core::{Over, Settled, Settlement, State};

use super::case::{Case, KEPT, LONG, answer, completed};
use crate::harness::Harness;

/// After so many steps, at most, a call is dropped.
const STEPS: u32 = 10;

/// Lets a call go on for that many steps, and drops it.
async fn dropped_after<T>(steps: u32, call: impl Future<Output = T>) -> Option<T> {
    let (mut call, mut left) = (pin!(call), steps);
    poll_fn(move |context| {
        left = left.saturating_sub(1);
        match call.as_mut().poll(context) {
            Poll::Ready(said) => Poll::Ready(Some(said)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// A call that is dropped half-way has happened or has not, and nothing in between: repeating it is acquired or applied, once, and
/// whoever looks sees all of it or nothing. It may land late, too.
pub async fn a_dropped_call_happened_or_did_not(harness: &dyn Harness) {
    for steps in 1..=STEPS {
        let case = Case::new(harness);
        let (store, id, claim) = (&case.store, &case.id, case.claim());
        let _ = dropped_after(steps, store.begin(id, &claim)).await;
        let attempt = case.acquire(&claim).await;
        assert_eq!((attempt.attempt, attempt.over), (1, Over::Nothing));

        let _ = dropped_after(steps, store.renew(id, &attempt.id(), LONG)).await;
        assert_eq!(case.renew(&attempt.id(), LONG).await, Settled::Applied);

        let how = Settlement { verdict: completed("receipt 7"), retain: KEPT };
        let _ = dropped_after(steps, store.settle(id, &attempt.id(), &how)).await;
        let state = case.state().await;
        let is_whole =
            matches!(&state, State::Running { .. }) || state == State::Completed(answer("receipt 7"));
        assert!(is_whole, "a settlement that was dropped left {state:?}");
        assert_eq!(case.settle(&attempt.id(), how.verdict.clone()).await, Settled::Applied);
        assert_eq!(case.state().await, State::Completed(answer("receipt 7")));

        let _ = dropped_after(steps, store.sweep(1)).await;
        let _ = dropped_after(steps, store.forget(id, attempt.fence)).await;
        // Applied, or lost because it had happened.
        case.forget(attempt.fence).await;
        assert_eq!(case.get().await, None);
        case.run().await;
    }
}
