//! How many retries all calls of a client may make together: when a server is down, retries must not keep it there.

use std::time::Duration;

use onlyonce_core::Moment;
use parking_lot::Mutex;

/// What every call adds.
const PER_CALL: f64 = 0.2;
/// A whole one, but for rounding.
const ONE: f64 = 1.0 - 1e-6;

/// A bucket of retries. Calls fill it a little, time fills it slowly, a retry takes one out.
#[derive(Debug)]
pub(crate) struct Allowance {
    most: f64,
    per_second: f64,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    left: f64,
    at: Moment,
}

impl Allowance {
    pub(crate) fn new(most: u32, per_second: u32, now: Moment) -> Self {
        let most = f64::from(most);
        Self { most, per_second: f64::from(per_second), state: Mutex::new(State { left: most, at: now }) }
    }

    /// A call begins.
    pub(crate) fn call(&self, now: Moment) {
        drop(self.refill(now, PER_CALL));
    }

    /// Whether one more retry may be made; it is taken if so.
    pub(crate) fn retry(&self, now: Moment) -> bool {
        let mut state = self.refill(now, 0.0);
        let allowed = state.left >= ONE;
        if allowed {
            state.left -= 1.0;
        }
        allowed
    }

    fn refill(&self, now: Moment, more: f64) -> parking_lot::MutexGuard<'_, State> {
        let mut state = self.state.lock();
        let passed: Duration = now.since(state.at);
        state.left = (state.left + more + passed.as_secs_f64() * self.per_second).min(self.most);
        state.at = state.at.max(now);
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_fraction_of_calls_and_time_once_the_reserve_is_gone() {
        let now = Moment::from_micros(1_000_000);
        let allowance = Allowance::new(3, 1, now);
        assert_eq!((0..10).filter(|_| allowance.retry(now)).count(), 3);
        (0..10).for_each(|_| allowance.call(now));
        assert_eq!((0..10).filter(|_| allowance.retry(now)).count(), 2);
        let later = now.plus(Duration::from_secs(100));
        assert_eq!((0..10).filter(|_| allowance.retry(later)).count(), 3);
        assert!(!allowance.retry(now), "a clock that is read late takes nothing out twice");
    }
}
