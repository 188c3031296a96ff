//! Counting what becomes of requests, by route.

use std::sync::Arc;

use onlyonce_core::Class;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tally {
    Executed,
    Released,
    Unknown,
    Replayed,
    FailedOpen,
    /// Refused, by this problem.
    Problem(&'static str),
}

impl From<Class> for Tally {
    fn from(class: Class) -> Self {
        match class {
            Class::Keep => Self::Executed,
            Class::Release => Self::Released,
            Class::Unknown => Self::Unknown,
        }
    }
}

/// Counts the requests of one route in `onlyonce_requests_total{route, result}`.
#[derive(Debug, Clone)]
pub(crate) struct Meter(metrics::SharedString);

impl Meter {
    /// Paths that match no pattern are counted together: there may be endlessly many of them.
    pub(crate) fn new((route, is_pattern): &(Arc<str>, bool)) -> Self {
        Self(if *is_pattern { Arc::clone(route).into() } else { "other".into() })
    }

    pub(crate) fn count(&self, what: Tally) {
        let result = match what {
            Tally::Executed => "executed",
            Tally::Released => "released",
            Tally::Unknown => "unknown",
            Tally::Replayed => "replayed",
            Tally::FailedOpen => "failed_open",
            Tally::Problem(name) => name,
        };
        metrics::counter!("onlyonce_requests_total", "route" => self.0.clone(), "result" => result)
            .increment(1);
    }
}
