//! The seam: what a backend of locks has to do, and nothing more.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::name::LockName;
use crate::error::StoreError;
use crate::record::{Fence, Owner};

/// A place where locks live. Every method is one atomic step, judged by the backend's own clock, bounded in time, and safe to
/// repeat.
///
/// The contract is stated by the lock laws of `onlyonce-testkit`, which every backend passes against its real server.
///
/// # Cancel safety
/// A dropped call may or may not have happened, as after [`ErrorKind::Ambiguous`](crate::ErrorKind::Ambiguous).
#[async_trait]
pub trait LockBackend: fmt::Debug + Send + Sync + 'static {
    /// What a holder can show: a [`Fence`](crate::Fence), or [`NoFence`] where there is none to be had.
    type Proof: Proof;

    /// Takes the lock for `ttl` if nobody has it. Repeated by its owner while it holds it, it is granted again, for `ttl` from
    /// then. Exactly one of many concurrent owners is granted it.
    ///
    /// # Errors
    /// If the backend fails; see [`ErrorKind`](crate::ErrorKind) for what that leaves behind.
    async fn acquire(
        &self,
        name: &LockName,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Acquired<Self::Proof>, StoreError>;

    /// Lets the owner keep the lock for `ttl` from now. Lost if it has run out or belongs to somebody else. An error means that
    /// nobody knows.
    ///
    /// # Errors
    /// If the backend fails.
    async fn renew(&self, name: &LockName, owner: &Owner, ttl: Duration) -> Result<Renewed, StoreError>;

    /// Frees the lock if it is this owner's, and wakes who waits for it.
    ///
    /// # Errors
    /// If the backend fails.
    async fn release(&self, name: &LockName, owner: &Owner) -> Result<Release, StoreError>;

    /// Ends when the lock may be free, at the latest after `timeout`. It may end early; the caller tries again.
    async fn freed(&self, name: &LockName, timeout: Duration);

    /// For how much of a `ttl` its holder may rely on it, counted from when it was asked for.
    fn validity(&self, ttl: Duration) -> Duration {
        ttl
    }
}

/// What a holder can show to the resource that it changes.
pub trait Proof: fmt::Debug + Clone + Send + Sync + 'static {}

impl Proof for Fence {}
impl Proof for NoFence {}

/// The answer to an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquired<P> {
    /// It is held, with this proof.
    Granted(P),
    /// Somebody else has it.
    Taken {
        /// When it runs out unless it is renewed, if that is known.
        free_in: Option<Duration>,
    },
}

/// The answer to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// It is held for another ttl.
    Renewed,
    /// It has run out, or somebody else has it.
    Lost,
}

/// The answer to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// It was held to the end, and is free now.
    Released,
    /// It had run out before; nobody else had taken it when this was asked.
    AlreadyExpired,
    /// It had run out before, and somebody else has it now.
    TakenOver,
    /// The same [`LockOwner`](super::LockOwner) holds it through another guard: it is released with the last one.
    StillHeld,
}

/// The proof of a lock without fences, such as RedLock: its guards have no `fence()`.
///
/// ```compile_fail
/// fn send(held: &onlyonce_core::lock::Held<onlyonce_core::lock::NoFence>) -> u64 {
///     held.fence().0
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoFence;
