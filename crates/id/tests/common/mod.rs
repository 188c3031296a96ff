//! A clock that can be set, forwards and back, and a check that finds every repeated id.
#![allow(dead_code, reason = "not every file of tests uses all of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

pub(crate) mod laws;
pub(crate) mod processes;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use onlyonce_core::{Clock, Moment, Sleep};
use onlyonce_id::SnowflakeId;

/// Another clock with its wall time shifted, as by an administrator or a broken time server.
#[derive(Debug, Clone)]
pub(crate) struct SetClock<C> {
    inner: C,
    shift: Arc<AtomicI64>,
}

impl<C: Clock> SetClock<C> {
    pub(crate) fn over(inner: C) -> Self {
        Self { inner, shift: Arc::default() }
    }

    /// Shows a time that is off by so many milliseconds.
    pub(crate) fn set_off_by(&self, millis: i64) {
        self.shift.store(millis, Ordering::SeqCst);
    }
}

impl<C: Clock> Clock for SetClock<C> {
    fn now(&self) -> Moment {
        self.inner.now()
    }

    fn wall_micros(&self) -> u64 {
        self.inner.wall_micros().saturating_add_signed(self.shift.load(Ordering::SeqCst) * 1000)
    }

    fn sleep(&self, span: Duration) -> Sleep {
        self.inner.sleep(span)
    }
}

/// Fails if an id is there twice.
pub(crate) fn assert_unique(mut ids: Vec<SnowflakeId>) {
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "there are duplicates");
}

/// A small generator of numbers that repeats itself for the same seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + i64::try_from(self.roll(u64::try_from(high - low).unwrap())).unwrap()
    }
}
