//! What the server's clock shows just now, without asking it.
//!
//! Who may run is judged by the server's own clock, inside of the scripts. A replay is only told its age and how long it is
//! kept, for which this is exact enough: as far off as a reply takes, and as the clocks drift within a minute.

use std::sync::atomic::{AtomicU64, Ordering};

use onlyonce_core::{Clock, Moment, SystemClock};

/// The server's time when this machine's monotonic clock began. Learnt from every reply that tells it, and at every sweep;
/// before the first one it is this machine's own.
#[derive(Debug)]
pub(crate) struct ServerTime(AtomicU64);

impl Default for ServerTime {
    fn default() -> Self {
        let time = Self(AtomicU64::new(0));
        time.learn(Moment::from_micros(SystemClock.wall_micros()));
        time
    }
}

impl ServerTime {
    pub(crate) fn learn(&self, now: Moment) {
        let origin = now.as_micros().saturating_sub(SystemClock.now().as_micros());
        self.0.store(origin, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::from_micros(self.0.load(Ordering::Relaxed).saturating_add(SystemClock.now().as_micros()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_of_the_server_goes_on_from_where_it_was_learnt() {
        let (time, learnt) = (ServerTime::default(), Moment::from_micros(1_700_000_000_000_000));
        time.learn(learnt);
        let (first, second) = (time.now(), time.now());
        assert!(learnt <= first && first <= second && second.since(learnt) < Duration::from_secs(600));
        time.learn(Moment::from_micros(learnt.as_micros() - 3_600_000_000));
        assert!(time.now() < learnt, "a clock that was set back is believed");
    }
}
