//! How long an upstream keeps connections that are idle, as far as that was seen.
//!
//! A request on a connection that the upstream is about to close is lost, and nobody knows whether it was read. So one idle connection at a
//! time is watched, and calls with a key use no connection that has idled for longer than half of what was seen to be safe.

use std::time::Duration;

use onlyonce::Moment;
use parking_lot::Mutex;

/// No connection is used for a call with a key after more than this.
pub(crate) const MOST_KEYED: Duration = Duration::from_secs(2);
/// An upstream that closes connections sooner than this gets a fresh one for every call with a key.
const EARLY: Duration = Duration::from_millis(250);
/// What is looked for, one after the other, on a connection that is watched.
pub(crate) const PROOFS: [Duration; 5] = [
    EARLY,
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// How many connections must outlast [`EARLY`] before an upstream that closed one earlier is trusted again.
const DISTRUST: u8 = 3;
/// How long all is taken to be as it was, once it is known.
const RECHECK: Duration = Duration::from_secs(10);

/// What is known of an upstream.
#[derive(Debug, Default)]
pub(crate) struct IdleLimit(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// How long idle connections were seen to be kept.
    proven: Duration,
    distrust: u8,
    /// A connection is watched at the moment.
    watching: bool,
    /// When everything was proven.
    checked: Option<Moment>,
}

/// Whether there is more to see on a connection that is watched.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    GoesOn,
    Ends,
}

impl IdleLimit {
    /// How long a connection may have idled that a call with a key uses.
    pub(crate) fn for_keyed(&self) -> Duration {
        let proven = self.0.lock().proven;
        if proven < EARLY { Duration::ZERO } else { MOST_KEYED.min(proven / 2) }
    }

    /// Whether the upstream was seen to close early, and not yet to have stopped that.
    pub(crate) fn closes_early(&self) -> bool {
        self.0.lock().distrust > 0
    }

    /// Whether the connection that has just become idle is to be watched.
    pub(crate) fn begins_watch(&self, now: Moment) -> bool {
        let mut known = self.0.lock();
        let recent = known.checked.is_some_and(|checked| now.since(checked) < RECHECK);
        let begins = !known.watching && !recent;
        known.watching |= begins;
        begins
    }

    /// The connection that is watched is still open after so long.
    pub(crate) fn survived(&self, age: Duration, now: Moment) -> Watch {
        let mut known = self.0.lock();
        if known.distrust > 0 {
            known.distrust -= 1;
        } else {
            known.proven = known.proven.max(age);
            if PROOFS.last().is_some_and(|last| age < *last) {
                return Watch::GoesOn;
            }
            known.checked = Some(now);
        }
        known.watching = false;
        Watch::Ends
    }

    /// The connection that is watched was closed after so long.
    pub(crate) fn closed(&self, age: Duration) {
        self.0.lock().watching = false;
        self.found_closed(age);
    }

    /// A connection that had idled for so long was found closed, or broke when it was used.
    pub(crate) fn found_closed(&self, age: Duration) {
        let mut known = self.0.lock();
        if age <= known.proven || age < EARLY {
            known.proven = age;
            known.distrust = DISTRUST;
            known.checked = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use onlyonce::{Clock, SystemClock};

    use super::*;

    #[test]
    fn only_half_of_what_was_seen_to_be_safe_is_used() {
        let (limit, now) = (IdleLimit::default(), SystemClock.now());
        assert_eq!(limit.for_keyed(), Duration::ZERO, "nothing is known yet");
        assert!(limit.begins_watch(now) && !limit.begins_watch(now), "one at a time");
        for (proof, usable) in PROOFS.into_iter().zip([125, 250, 500, 1000, 2000]) {
            let watch = limit.survived(proof, now);
            assert_eq!(watch == Watch::Ends, proof == PROOFS[4]);
            assert_eq!(limit.for_keyed(), Duration::from_millis(usable));
        }
        assert!(!limit.begins_watch(now), "all is known for a while");
        assert!(limit.begins_watch(now.plus(RECHECK)));
        // A close after a longer time than was relied on says nothing new.
        limit.closed(Duration::from_secs(5));
        assert_eq!(limit.for_keyed(), MOST_KEYED);
    }

    #[test]
    fn an_upstream_that_closes_early_is_trusted_again_only_after_several_good_connections() {
        let (limit, now) = (IdleLimit::default(), SystemClock.now());
        for proof in PROOFS {
            limit.survived(proof, now);
        }
        limit.found_closed(Duration::from_millis(7));
        for _ in 0..DISTRUST {
            assert_eq!((limit.for_keyed(), limit.closes_early()), (Duration::ZERO, true));
            assert!(limit.begins_watch(now));
            assert_eq!(limit.survived(EARLY, now), Watch::Ends);
        }
        assert!(limit.begins_watch(now));
        assert_eq!(limit.survived(EARLY, now), Watch::GoesOn);
        assert_eq!((limit.for_keyed(), limit.closes_early()), (EARLY / 2, false));
    }
}
