//! Counting what becomes of locks. The names are in the docs of the [module](super).

use std::time::Duration;

/// A lock that is held, until this is dropped.
#[derive(Debug)]
pub(super) struct Counted(());

impl Counted {
    pub(super) fn new(waited: Duration) -> Self {
        metrics::counter!("onlyonce_lock_acquires_total", "result" => "acquired").increment(1);
        metrics::histogram!("onlyonce_lock_wait_seconds").record(waited.as_secs_f64());
        metrics::gauge!("onlyonce_locks_held").increment(1.0);
        Self(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        metrics::gauge!("onlyonce_locks_held").decrement(1.0);
    }
}

pub(super) fn busy() {
    metrics::counter!("onlyonce_lock_acquires_total", "result" => "busy").increment(1);
}

pub(super) fn failed() {
    metrics::counter!("onlyonce_lock_acquires_total", "result" => "failed").increment(1);
}

pub(super) fn renewed() {
    metrics::counter!("onlyonce_lock_renewals_total", "result" => "renewed").increment(1);
}

pub(super) fn renewal_lost() {
    metrics::counter!("onlyonce_lock_renewals_total", "result" => "lost").increment(1);
}

pub(super) fn renewal_unknown() {
    metrics::counter!("onlyonce_lock_renewals_total", "result" => "unknown").increment(1);
}

pub(super) fn lost() {
    metrics::counter!("onlyonce_lock_lost_total").increment(1);
}

pub(super) fn dropped_unreleased() {
    metrics::counter!("onlyonce_lock_dropped_unreleased_total").increment(1);
}
