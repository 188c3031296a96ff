//! Who may make ids under which worker number, and for which time.
//!
//! A grant is a **time window** of a worker number, and the store never grants the same time of the same number to two owners.
//! An id carries only a time inside its maker's window. So ids are unique because of the grants, whatever the clocks do: a
//! clock that is set back, a restart, a paused process that wakes up late (it can only use up its own window), and workers
//! that come and go.

mod fixed;
mod memory;
#[cfg(feature = "redis")]
mod redis;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

pub use fixed::FixedWorker;
pub use memory::MemoryGrants;
#[cfg(feature = "redis")]
pub use redis::RedisGrants;

/// A generator's name towards a store of grants: made once, unlike every other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holder(u128);

impl Holder {
    /// A new name.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// As a store of grants keeps it. Never all zeros but by a chance of one in 2^128, so that they may stand for nobody.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What a generator asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Who asks.
    pub holder: Holder,
    /// The worker number that it has, if it has one.
    pub worker: Option<u64>,
    /// How many worker numbers the layout has.
    pub workers: u64,
    /// How long a window it wants, from now on.
    pub span: Duration,
}

/// A window of a worker number: `from` until before `until`, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The worker number.
    pub worker: u64,
    /// The first millisecond.
    pub from: u64,
    /// The millisecond after the last.
    pub until: u64,
}

/// A store of grants.
///
/// # The law
/// Windows of the same worker number that were granted to different holders never overlap. A holder that asks again with the
/// number that it has gets the same number with a window that begins where its own began, if nobody else was given the number
/// meanwhile; else another number. The store's own clock says what "now" is.
#[async_trait]
pub trait Grants: fmt::Debug + Send + Sync + 'static {
    /// Grants a window, or more of the window that the holder has.
    ///
    /// # Errors
    /// If every number is taken, or the store does not answer. After no answer a window may have been granted to nobody, which
    /// costs a number for one span.
    async fn grant(&self, request: &Request) -> Result<Grant, GrantError>;

    /// Gives the rest of a window back: no id carries `used_until` or later. The number is free from then on.
    ///
    /// # Errors
    /// If the store does not answer; then the window simply runs out.
    async fn release(&self, holder: Holder, worker: u64, used_until: u64) -> Result<(), GrantError>;
}

/// Why there is no grant.
#[derive(Debug)]
#[non_exhaustive]
pub enum GrantError {
    /// Every worker number is taken.
    Exhausted {
        /// How many there are.
        workers: u64,
    },
    /// The store of grants failed.
    Unavailable(Box<dyn Error + Send + Sync>),
}

impl GrantError {
    /// The store of grants failed.
    pub fn unavailable(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unavailable(cause.into())
    }
}

impl fmt::Display for GrantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted { workers } => write!(
                f,
                "all {workers} worker numbers are taken; stop a worker, wait until a window runs out, or use a layout with more worker bits"
            ),
            Self::Unavailable(_) => f.write_str("the store of worker numbers does not answer"),
        }
    }
}

impl Error for GrantError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unavailable(cause) => Some(&**cause),
            Self::Exhausted { .. } => None,
        }
    }
}
