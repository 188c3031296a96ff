//! Log lines that would come once a call: one now and then, which says how often it happened, and all of them at debug level.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Moment, SystemClock};

/// How long a line is not repeated.
const PAUSE: Duration = Duration::from_secs(10);

/// Whose turn it is to be told. Public for the other crates of this project only.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    last: Option<Moment>,
    since: u64,
}

impl Seldom {
    /// Nothing was told yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Told { last: None, since: 0 }))
    }

    /// It happened once more. If it is to be told now: how often since it was told last.
    pub fn happened(&self) -> Option<u64> {
        let mut told = self.0.lock();
        told.since += 1;
        told.turn(SystemClock.now())
    }

    /// How often it happened and was not told, if it is time to tell.
    pub fn left(&self) -> Option<u64> {
        self.0.lock().turn(SystemClock.now())
    }
}

impl Told {
    fn turn(&mut self, now: Moment) -> Option<u64> {
        let is_due = self.last.is_none_or(|last| now.since(last) >= PAUSE);
        if self.since == 0 || !is_due {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.since))
    }
}

/// Writes a log line of this level now and then, with how many `times` it was due since, and at debug level always.
#[doc(hidden)]
#[macro_export]
macro_rules! seldom {
    ($level:ident, $($line:tt)*) => {{
        static LINES: $crate::Seldom = $crate::Seldom::new();
        match LINES.happened() {
            Some(times) => tracing::$level!(times, $($line)*),
            None => tracing::debug!($($line)*),
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_told_at_once_then_seldom_and_with_its_number() {
        let mut told = Told { last: None, since: 1 };
        let at = |seconds: u64| Moment::from_micros(seconds * 1_000_000);
        assert_eq!(told.turn(at(5)), Some(1));
        told.since = 999;
        assert_eq!(told.turn(at(14)), None);
        assert_eq!(told.turn(at(15)), Some(999));
        assert_eq!(told.turn(at(60)), None, "nothing has happened since");
    }
}
