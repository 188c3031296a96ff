//! What a store author writes: how to open the store, and how its time passes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::{Inspect, Store};

use crate::laws::LawFn;

/// A store under test and its time. One is opened for every law.
///
/// The laws use fresh random records, so the store behind may be shared and may hold leftovers.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Opens the store. A server that is missing is a failure: panic, so that no law passes by not being run.
    async fn open() -> Self
    where
        Self: Sized;

    /// The store.
    fn store(&self) -> Arc<dyn Store>;

    /// The unit of time of the laws: 30 s where time is moved by hand, at most 300 ms where [`pass`](Self::pass) really
    /// waits. Laws let a few of these pass.
    fn lease(&self) -> Duration;

    /// Lets at least that much time pass on the clock by which the store judges leases.
    async fn pass(&self, span: Duration);
}

/// A harness of a store that can be looked through.
///
/// The law about counts compares before and after: give every `open` a part of its own (a prefix, a schema, a file), or
/// let nothing else write meanwhile.
#[async_trait]
pub trait InspectHarness: Harness {
    /// The same store as [`Harness::store`].
    fn inspect(&self) -> Arc<dyn Inspect>;
}

/// A harness of a store that can be full.
#[async_trait]
pub trait FullHarness: Harness {
    /// Leaves no room for a new record, and keeps what is there: a memory that is used up, a limit that is reached.
    async fn fill(&self);
}

/// Runs one law on a freshly opened store, on a runtime with two threads so that races are real. For the macros.
#[doc(hidden)]
pub fn run_law<H: Harness>(law: LawFn) {
    block_on(async { law(&H::open().await).await });
}

/// As [`run_law`], for a law about looking through a store.
#[doc(hidden)]
pub fn run_inspect_law<H: InspectHarness>(law: crate::laws::InspectLawFn) {
    block_on(async { law(&H::open().await).await });
}

/// As [`run_law`], for a law about a store that is full.
#[doc(hidden)]
pub fn run_full_law<H: FullHarness>(law: crate::laws::FullLawFn) {
    block_on(async { law(&H::open().await).await });
}

fn block_on(law: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime for one test").block_on(law);
}
