//! Locks whose backend can be told to fail, and whose time is moved by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::lock::{
    Acquired, LockBackend, LockName, Locks, LocksBuilder, MemoryLocks, Release, Renewed,
};
use onlyonce_core::{Fence, ManualClock, Owner, StoreError};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// A server with a switch, and what it was asked.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) memory: MemoryLocks,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    mood: AtomicU8,
    acquires: AtomicU32,
    renewals: AtomicU32,
    releases: AtomicU32,
}

/// How the server treats requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mood {
    Fine = 0,
    /// Nothing happens, and an error says so.
    Down = 1,
    /// Nothing happens, and nobody says anything.
    BlackHole = 2,
    /// It happens, and the reply is lost.
    LosesReplies = 3,
    /// It happens, but the reply never comes.
    NeverReplies = 4,
}

impl Server {
    pub(crate) fn is(&self, mood: Mood) {
        self.state.mood.store(mood as u8, Ordering::SeqCst);
    }

    pub(crate) fn acquires(&self) -> u32 {
        self.state.acquires.load(Ordering::SeqCst)
    }

    pub(crate) fn renewals(&self) -> u32 {
        self.state.renewals.load(Ordering::SeqCst)
    }

    pub(crate) fn releases(&self) -> u32 {
        self.state.releases.load(Ordering::SeqCst)
    }

    async fn treat<T>(
        &self,
        call: &'static str,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match self.state.mood.load(Ordering::SeqCst) {
            1 => Err(StoreError::unavailable("test", call, "down")),
            2 => std::future::pending().await,
            3 => {
                request.await?;
                Err(StoreError::ambiguous("test", call, "the reply is lost"))
            }
            4 => {
                request.await?;
                std::future::pending().await
            }
            _ => request.await,
        }
    }
}

#[async_trait]
impl LockBackend for Server {
    type Proof = Fence;

    async fn acquire(
        &self,
        name: &LockName,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Acquired<Fence>, StoreError> {
        self.state.acquires.fetch_add(1, Ordering::SeqCst);
        self.treat("acquire", self.memory.acquire(name, owner, ttl)).await
    }

    async fn renew(&self, name: &LockName, owner: &Owner, ttl: Duration) -> Result<Renewed, StoreError> {
        self.state.renewals.fetch_add(1, Ordering::SeqCst);
        self.treat("renew", self.memory.renew(name, owner, ttl)).await
    }

    async fn release(&self, name: &LockName, owner: &Owner) -> Result<Release, StoreError> {
        self.state.releases.fetch_add(1, Ordering::SeqCst);
        self.treat("release", self.memory.release(name, owner)).await
    }

    async fn freed(&self, name: &LockName, timeout: Duration) {
        self.memory.freed(name, timeout).await;
    }
}

pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) server: Server,
    pub(crate) locks: Locks,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(more: impl FnOnce(LocksBuilder) -> LocksBuilder) -> Self {
        let clock = ManualClock::new();
        let memory = MemoryLocks::with_clock(clock.clone());
        let server = Server { memory, state: Arc::default() };
        let locks = more(Locks::builder(server.clone()).clock(clock.clone())).build();
        Self { clock, server, locks }
    }

    /// Another process on the same server.
    pub(crate) fn elsewhere(&self) -> Locks {
        Locks::builder(self.server.clone()).clock(self.clock.clone()).build()
    }

    /// Lets time pass a second at a time, and lets everybody act in between.
    pub(crate) async fn pass(&self, seconds: u32) {
        for _ in 0..seconds {
            self.clock.advance(SECOND);
            rest().await;
        }
    }
}

/// Lets every task do what it can.
pub(crate) async fn rest() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// Waits, in real time, until it is so.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("still not so: {what}");
}
