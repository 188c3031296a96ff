//! What a failed command left behind, told from what the driver knows of it.

use std::error::Error;
use std::fmt;

use onlyonce_core::{ErrorKind, StoreError};
use redis::RedisError;

pub(crate) const BACKEND: &str = "redis";

/// With one of these a server says that it executed nothing. Whatever else it says may come from a proxy in between, after
/// the command was passed on.
const REFUSALS: &[&str] = &[
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "WRONGPASS",
];

/// A command that failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// There was no connection to send it on.
    NotSent(RedisError),
    /// It was sent, once.
    Sent(RedisError),
    /// It may have been sent more than once, so that the last error says nothing about the first.
    Unclear(RedisError),
}

impl Fault {
    pub(crate) fn cause(&self) -> &RedisError {
        match self {
            Self::NotSent(cause) | Self::Sent(cause) | Self::Unclear(cause) => cause,
        }
    }

    pub(crate) fn into_cause(self) -> RedisError {
        let (Self::NotSent(cause) | Self::Sent(cause) | Self::Unclear(cause)) = self;
        cause
    }

    fn kind(&self) -> ErrorKind {
        let cause = self.cause();
        match self {
            _ if says(cause, "WRONGTYPE") || cause.code() == Some("CORRUPT") => ErrorKind::Corrupt,
            Self::NotSent(_) => ErrorKind::Unavailable,
            Self::Sent(_) if cause.code().is_some_and(|code| REFUSALS.contains(&code)) => {
                ErrorKind::Unavailable
            }
            // An error within one of our scripts, which write last. Commands that the user may not run are told like this.
            Self::Sent(_) if says(cause, "@user_script") => ErrorKind::Unavailable,
            Self::Sent(_) | Self::Unclear(_) => ErrorKind::Ambiguous,
        }
    }

    pub(crate) fn during(self, call: &'static str) -> StoreError {
        let kind = self.kind();
        StoreError::new(kind, BACKEND, call, self.into_cause())
    }
}

/// A reply or a stored value that makes no sense.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Damaged(pub(crate) &'static str);

impl Damaged {
    pub(crate) fn during(self, call: &'static str) -> StoreError {
        StoreError::corrupt(BACKEND, call, self)
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Damaged {}

/// Whether a server says this code. Before version 7, the code of an error inside of a script is in its text.
pub(crate) fn says(cause: &RedisError, code: &str) -> bool {
    cause.code() == Some(code) || cause.detail().is_some_and(|detail| detail.contains(code))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn replied(code: &str, detail: &str) -> RedisError {
        redis::make_extension_error(code.into(), Some(detail.into()))
    }

    #[test]
    fn what_the_server_refused_did_not_happen() {
        for code in REFUSALS {
            assert_eq!(Fault::Sent(replied(code, "…")).kind(), ErrorKind::Unavailable, "{code}");
            assert_eq!(Fault::Unclear(replied(code, "…")).kind(), ErrorKind::Ambiguous, "{code}");
        }
        assert_eq!(Fault::Sent(replied("ERR", "upstream failure")).kind(), ErrorKind::Ambiguous);
    }

    #[test]
    fn an_error_within_a_script_did_not_happen_either() {
        let not_allowed =
            "The user executing the script can't run this command script: ce…, on @user_script:40.";
        assert_eq!(Fault::Sent(replied("ERR", not_allowed)).kind(), ErrorKind::Unavailable);
        assert_eq!(Fault::Unclear(replied("ERR", not_allowed)).kind(), ErrorKind::Ambiguous);
    }

    #[test]
    fn a_reply_that_did_not_come_is_ambiguous_only_if_the_command_was_sent() {
        for kind in [io::ErrorKind::TimedOut, io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionRefused] {
            let cause = || RedisError::from(io::Error::from(kind));
            assert_eq!(Fault::Sent(cause()).kind(), ErrorKind::Ambiguous, "{kind}");
            assert_eq!(Fault::NotSent(cause()).kind(), ErrorKind::Unavailable, "{kind}");
        }
    }

    #[test]
    fn a_primary_that_became_a_replica_says_so_in_every_version() {
        let before_7 = "Error running script (call to f_0): @user_script:9: -READONLY You can't write against a read only replica.";
        assert!(says(&replied("READONLY", "…"), "READONLY") && says(&replied("ERR", before_7), "READONLY"));
        assert!(!says(&replied("ERR", "unknown command"), "READONLY"));
    }

    #[test]
    fn what_is_no_record_is_corrupt() {
        let before_7 =
            "Error running script (call to f_0): @user_script:13: WRONGTYPE Operation against a key";
        for cause in [replied("WRONGTYPE", "…"), replied("CORRUPT", "…"), replied("ERR", before_7)] {
            assert_eq!(Fault::Sent(cause).kind(), ErrorKind::Corrupt);
        }
    }
}
