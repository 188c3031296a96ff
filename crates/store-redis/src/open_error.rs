//! Why a store was not opened, and what to do about it.

use std::error::Error;
use std::fmt;

use redis::RedisError;

use crate::checks::Concern;

/// The store was not opened. `Display` says what to do next, never shows a password, and does not repeat its
/// [`source`](Error::source).
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL can't be understood.
    Url {
        /// What is wrong with it.
        why: &'static str,
    },
    /// What was asked for is not there yet, or not in this build.
    NotSupported {
        /// What that is.
        what: &'static str,
    },
    /// The prefix has braces.
    Prefix,
    /// The server was not reached, or refused the login.
    Connect {
        /// Whom it was about: addresses without user and password.
        address: String,
        /// What the driver said.
        source: RedisError,
    },
    /// The server is not one to keep records on: a replica, a node of a Cluster, or too old.
    WrongServer {
        /// What it is, and what to do.
        why: &'static str,
    },
    /// The server may lose records, and [`strict`](crate::Builder::strict) was asked for.
    Unsafe {
        /// What is to be set.
        concerns: Vec<Concern>,
    },
}

impl OpenError {
    pub(crate) const fn url(why: &'static str) -> Self {
        Self::Url { why }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { why } => write!(
                f,
                "the URL of Redis is not understood: {why}. There are redis://[user:password@]host:port[/database], \
                 rediss:// (TLS), redis-sentinel://[user:password@]host:port,host:port/name[/database], \
                 redis-cluster://[user:password@]host:port,host:port, both with rediss too, and host:port;host:port for a \
                 Cluster"
            ),
            Self::NotSupported { what } => write!(f, "not supported yet: {what}"),
            Self::Prefix => f.write_str(
                "the prefix has braces, by which a Cluster would place every record on one node: leave them out",
            ),
            Self::Connect { address, .. } => write!(
                f,
                "Redis at {address} was not reached or refused the login: see the cause, and check address, user and password"
            ),
            Self::WrongServer { why } => write!(f, "records can't be kept on this Redis: {why}"),
            Self::Unsafe { concerns } => {
                f.write_str("this Redis may lose records, so that calls could run twice, and `strict` is on:")?;
                concerns.iter().try_for_each(|concern| write!(f, " {concern};"))
            }
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Connect { source, .. } => Some(source),
            _ => None,
        }
    }
}
