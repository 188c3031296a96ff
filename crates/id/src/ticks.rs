//! The counter behind a generator: one atomic number that only rises. Pure but for that number; time is an argument.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::IdError;

/// How far the clock may be behind the time that ids carry: what a small set-back is.
const BRIDGED: u64 = 2_000;
/// How far ids may carry a time behind the clock: so much of the past that was not used up is used first, so that a caller who
/// overslept a millisecond does not lose its ids.
const LAG: u64 = 10;
/// A counter that gives nothing any more.
const CLOSED: u64 = 1 << 63;

/// Ticks are times of `1 << SEQUENCE` ids each; the worker's window is the time in which they may be taken.
#[derive(Debug)]
pub(crate) struct Ticks<const WORKER: u32, const SEQUENCE: u32> {
    /// The next tick that nobody has.
    next: AtomicU64,
    /// The end of the window and the worker, in one number, so that they are always read together.
    window: AtomicU64,
}

/// Ticks that were taken, all in one millisecond, for one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) worker: u64,
}

impl<const WORKER: u32, const SEQUENCE: u32> Ticks<WORKER, SEQUENCE> {
    pub(crate) const fn new() -> Self {
        Self { next: AtomicU64::new(0), window: AtomicU64::new(0) }
    }

    /// Opens a window: times from `from` until before `until`, under `worker`.
    pub(crate) fn open(&self, worker: u64, from: u64, until: u64) {
        // First the counter, then the window: whoever sees the new window sees a counter inside of it.
        self.next.fetch_max(from << SEQUENCE, Ordering::AcqRel);
        self.window.store(until << WORKER | worker, Ordering::Release);
    }

    /// The worker and the end of the window.
    pub(crate) fn window(&self) -> (u64, u64) {
        let window = self.window.load(Ordering::Acquire);
        (window & ((1 << WORKER) - 1), window >> WORKER)
    }

    /// Gives nothing any more, and says before which time everything was given.
    pub(crate) fn close(&self) -> Option<u64> {
        // A caller that has read the counter before fails to change it now.
        let next = self.next.swap(CLOSED, Ordering::AcqRel);
        (next != CLOSED).then_some((next >> SEQUENCE) + 1)
    }

    /// Whether it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.next.load(Ordering::Acquire) == CLOSED
    }

    /// Takes up to `most` ticks of one millisecond.
    pub(crate) fn take(&self, now: u64, most: u64) -> Result<Run, IdError> {
        // The window before the counter; see `open`. An old window with a newer counter is harmless: it is checked below.
        let (worker, until) = self.window();
        let mut next = self.next.load(Ordering::Acquire);
        loop {
            let start = if next >> SEQUENCE < now.saturating_sub(LAG) { now << SEQUENCE } else { next };
            let time = start >> SEQUENCE;
            if next == CLOSED {
                return Err(IdError::Closed);
            }
            if time >= until || now >= until {
                return Err(IdError::NoGrant);
            }
            let ahead = time.saturating_sub(now);
            let fresh = start == time << SEQUENCE;
            // One ahead and untouched: the present is used up. Further ahead the clock was set back, and time is borrowed.
            if fresh && (ahead == 1 || ahead == BRIDGED + 1) {
                return Err(IdError::Ceiling);
            }
            if ahead > BRIDGED {
                return Err(IdError::ClockWentBack { by: Duration::from_millis(ahead) });
            }
            let end = (start + most).min((time + 1) << SEQUENCE);
            match self.next.compare_exchange_weak(next, end, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(Run { start, end, worker }),
                Err(current) => next = current,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(from: u64, until: u64) -> Ticks<4, 2> {
        let ticks = Ticks::new();
        ticks.open(9, from, until);
        ticks
    }

    fn times(ticks: &Ticks<4, 2>, now: u64, count: usize) -> Vec<u64> {
        (0..count).map(|_| ticks.take(now, 1).unwrap().start >> 2).collect()
    }

    #[test]
    fn a_millisecond_has_no_more_than_its_ids() {
        let ticks = open(100, 200);
        assert_eq!(times(&ticks, 100, 4), [100; 4]);
        assert!(matches!(ticks.take(100, 1), Err(IdError::Ceiling)));
        assert_eq!(times(&ticks, 101, 1), [101]);
    }

    #[test]
    fn a_short_sleep_too_long_loses_no_ids_and_a_long_one_is_not_made_up_for() {
        let ticks = open(100, 1000);
        assert_eq!(times(&ticks, 100, 4), [100; 4]);
        assert_eq!(times(&ticks, 103, 5), [101, 101, 101, 101, 102]);
        assert_eq!(times(&ticks, 150, 1), [150]);
    }

    #[test]
    fn a_small_set_back_is_held_and_borrowed_and_a_large_one_is_an_error() {
        let ticks = open(10_000, 90_000);
        assert_eq!(times(&ticks, 20_000, 1), [20_000]);
        assert_eq!(times(&ticks, 19_000, 5), [20_000, 20_000, 20_000, 20_001, 20_001]);
        let Err(IdError::ClockWentBack { by }) = ticks.take(17_000, 1) else { panic!("it is 3 s back") };
        assert_eq!(by, Duration::from_millis(3001));
        assert_eq!(times(&ticks, 20_500, 1), [20_500]);
    }

    #[test]
    fn what_is_borrowed_has_an_end_and_then_it_is_waited_for() {
        let ticks = open(10_000, 90_000);
        assert_eq!(times(&ticks, 20_000, 1), [20_000]);
        let borrowed = std::iter::from_fn(|| ticks.take(19_998, 4).ok()).count();
        assert_eq!(borrowed as u64, BRIDGED - 2 + 1);
        assert!(matches!(ticks.take(19_998, 1), Err(IdError::Ceiling)));
        assert_eq!(times(&ticks, 19_999, 1), [19_999 + BRIDGED]);
    }

    #[test]
    fn no_id_carries_a_time_outside_of_its_window() {
        let ticks = open(100, 103);
        assert_eq!(times(&ticks, 98, 1), [100], "the clock is a little behind that of the grants");
        assert!(matches!(ticks.take(103, 1), Err(IdError::NoGrant)));
        ticks.open(9, 100, 104);
        assert_eq!(ticks.take(103, 9).unwrap(), Run { start: 401, end: 404, worker: 9 });
    }

    #[test]
    fn a_closed_counter_says_what_it_gave_and_gives_no_more() {
        let ticks = open(100, 200);
        assert_eq!(times(&ticks, 150, 1), [150]);
        assert_eq!(ticks.close(), Some(151));
        assert!(matches!(ticks.take(150, 1), Err(IdError::Closed)));
        ticks.open(9, 160, 300);
        assert!(matches!(ticks.take(170, 1), Err(IdError::Closed)));
        assert_eq!(ticks.close(), None);
    }
}
