//! Whether a new call could begin.

use super::case::{Case, completed, ok};
use crate::harness::Harness;

/// A store that takes calls says so, before the first one and after it.
pub async fn a_store_that_takes_calls_is_ready(harness: &dyn Harness) {
    let store = harness.store();
    ok(store.ready());
    Case::new(harness).settled(completed("a")).await;
    ok(store.ready());
}
