//! What can go wrong with a call.

use std::time::Duration;

/// A call of a store that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// See [`Store::begin`](onlyonce_core::Store::begin).
    Begin,
    /// See [`Store::renew`](onlyonce_core::Store::renew).
    Renew,
    /// See [`Store::settle`](onlyonce_core::Store::settle).
    Settle,
    /// See [`Store::get`](onlyonce_core::Store::get).
    Get,
    /// See [`Store::forget`](onlyonce_core::Store::forget).
    Forget,
    /// See [`Store::sweep`](onlyonce_core::Store::sweep).
    Sweep,
}

impl Op {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Renew => "renew",
            Self::Settle => "settle",
            Self::Get => "get",
            Self::Forget => "forget",
            Self::Sweep => "sweep",
        }
    }
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It does not happen, and the caller hears so.
    Unavailable,
    /// The request is lost: it does not happen, and the caller does not know.
    RequestLost,
    /// The reply is lost: it happens, and the caller does not know.
    ReplyLost,
    /// The caller hears nothing in time; it happens after that long. The nastiest of all.
    LandsLate(Duration),
    /// It takes that much longer.
    Delay(Duration),
    /// It does not happen, and there is never a reply.
    HangBefore,
    /// It happens, and there is never a reply.
    HangAfter,
    /// The store refuses it for good.
    Rejected,
    /// What is stored can't be read.
    Corrupt,
    /// It does not happen: the driver panics.
    Panic,
}
