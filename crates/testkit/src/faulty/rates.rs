//! How often calls fail at random.

use std::time::Duration;

use super::fault::Fault;

/// Of a thousand calls, how many fail in which way. What is left of the thousand does not fail.
///
/// ```
/// use onlyonce_testkit::Rates;
/// let lossy = Rates { request_lost: 50, reply_lost: 50, ..Rates::NONE };
/// assert_eq!(lossy.unavailable, 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// See [`Fault::Unavailable`].
    pub unavailable: u16,
    /// See [`Fault::RequestLost`].
    pub request_lost: u16,
    /// See [`Fault::ReplyLost`].
    pub reply_lost: u16,
    /// See [`Fault::LandsLate`].
    pub lands_late: u16,
    /// See [`Fault::Delay`].
    pub delay: u16,
    /// Delays and late landings take up to this long.
    pub longest: Duration,
}

impl Rates {
    /// Nothing fails.
    pub const NONE: Self = Self {
        unavailable: 0,
        request_lost: 0,
        reply_lost: 0,
        lands_late: 0,
        delay: 0,
        longest: Duration::from_millis(100),
    };

    /// The fault for two random numbers: which, and how long.
    pub(super) fn pick(&self, which: u64, how_long: u64) -> Option<Fault> {
        let longest = u64::try_from(self.longest.as_micros()).unwrap_or(u64::MAX);
        let span = Duration::from_micros(how_long % longest.max(1));
        let faults = [
            (self.unavailable, Fault::Unavailable),
            (self.request_lost, Fault::RequestLost),
            (self.reply_lost, Fault::ReplyLost),
            (self.lands_late, Fault::LandsLate(span)),
            (self.delay, Fault::Delay(span)),
        ];
        let mut left = which % 1000;
        for (rate, fault) in faults {
            match left.checked_sub(u64::from(rate)) {
                None => return Some(fault),
                Some(rest) => left = rest,
            }
        }
        None
    }
}
