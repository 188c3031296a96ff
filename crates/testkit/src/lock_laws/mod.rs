//! The contract of a backend of locks, one function a law. Every sentence of the docs of
//! [`LockBackend`] is here.

pub mod fences;
pub mod holding;
mod table;
pub mod taking;
pub mod waiting;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::Owner;
use onlyonce_core::lock::{Acquired, LockBackend, LockName, Proof, Release, Renewed};

/// A backend of locks under test, and its time. One is opened for every law.
#[async_trait]
pub trait LockHarness: Send + Sync {
    /// What the holders of this backend can show.
    type Proof: Proof;

    /// Opens the backend. A server that is missing is a failure: panic, so that no law passes by not being run.
    async fn open() -> Self
    where
        Self: Sized;

    /// The backend.
    fn backend(&self) -> Arc<dyn LockBackend<Proof = Self::Proof>>;

    /// The unit of time of the laws; they let a few of these pass.
    fn unit(&self) -> Duration;

    /// Lets at least that much time pass on the clock by which the backend judges.
    async fn pass(&self, span: Duration);
}

/// A ttl that does not end while a law runs.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// One lock of a backend, under a name that nobody else has.
pub(crate) struct Case<'a, H: LockHarness> {
    pub(crate) harness: &'a H,
    pub(crate) backend: Arc<dyn LockBackend<Proof = H::Proof>>,
    pub(crate) name: LockName,
}

impl<'a, H: LockHarness> Case<'a, H> {
    pub(crate) fn new(harness: &'a H) -> Self {
        Self::named(harness, &format!("law:{:016x}", rand::random::<u64>()))
    }

    pub(crate) fn named(harness: &'a H, name: &str) -> Self {
        let name = LockName::new(name).expect("a good name");
        Self { harness, backend: harness.backend(), name }
    }

    pub(crate) async fn acquire(&self, owner: &Owner, ttl: Duration) -> Acquired<H::Proof> {
        self.backend.acquire(&self.name, owner, ttl).await.expect("a backend that answers")
    }

    /// Whether the owner is granted the lock.
    pub(crate) async fn takes(&self, owner: &Owner, ttl: Duration) -> bool {
        matches!(self.acquire(owner, ttl).await, Acquired::Granted(_))
    }

    /// Somebody takes it.
    pub(crate) async fn taken(&self, ttl: Duration) -> Owner {
        let owner = Owner::random();
        assert!(self.takes(&owner, ttl).await, "a free lock is granted");
        owner
    }

    pub(crate) async fn renew(&self, owner: &Owner, ttl: Duration) -> Renewed {
        self.backend.renew(&self.name, owner, ttl).await.expect("a backend that answers")
    }

    pub(crate) async fn release(&self, owner: &Owner) -> Release {
        self.backend.release(&self.name, owner).await.expect("a backend that answers")
    }

    pub(crate) async fn pass(&self, units: u32) {
        self.harness.pass(self.harness.unit() * units).await;
    }

    pub(crate) fn unit(&self) -> Duration {
        self.harness.unit()
    }
}

/// Runs one law on a freshly opened backend. For the macro.
#[doc(hidden)]
pub fn run_lock_law<H: LockHarness>(law: impl AsyncFn(&H)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime for one test").block_on(async { law(&H::open().await).await });
}
