//! Counting what becomes of requests, by route.

use std::sync::Arc;

use onlyonce_core::{Class, Clock, Moment};

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

/// Whether the time that requests take is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Timings {
    /// No: it costs two looks at the clock a request.
    #[default]
    Off,
    /// Yes, by route and result.
    On,
}

/// Counts the requests of one route in `onlyonce_requests_total{route, result}`, and how long they take.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    route: metrics::SharedString,
    timer: Option<(Moment, Arc<dyn Clock>)>,
}

impl Meter {
    /// Paths that match no pattern are counted together: there may be endlessly many of them.
    pub(crate) fn new((route, is_pattern): &(Arc<str>, bool)) -> Self {
        let route = if *is_pattern { Arc::clone(route).into() } else { "other".into() };
        Self { route, timer: None }
    }

    /// The same, and from now on the time runs.
    pub(crate) fn timed(mut self, timings: Timings, clock: &Arc<dyn Clock>) -> Self {
        self.timer = (timings == Timings::On).then(|| (clock.now(), Arc::clone(clock)));
        self
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
        metrics::counter!("onlyonce_requests_total", "route" => self.route.clone(), "result" => result)
            .increment(1);
        if let Some((begun, clock)) = &self.timer {
            let took = clock.now().since(*begun);
            metrics::histogram!("onlyonce_request_seconds", "route" => self.route.clone(), "result" => result)
                .record(took);
        }
    }
}
