//! Counting what becomes of requests, by route.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Class, Clock, Moment};

use crate::layer::Shared;
use crate::routes::Route;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tally {
    Executed,
    Released,
    Unknown,
    Replayed,
    FailedOpen,
    /// A write on a declared route that has no key, and is passed on unprotected.
    Unkeyed,
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

/// Counts the requests of one route, those with a key in `onlyonce_requests_total{route, result}`, and how long they take.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    /// Whose counts these are.
    layer: u64,
    /// `None` for paths that match no pattern: they are counted together, because there may be endlessly many of them.
    route: Option<Arc<str>>,
    begun: Option<Moment>,
}

impl Meter {
    pub(crate) fn new(shared: &Shared, route: &Arc<str>, is_pattern: bool) -> Self {
        Self { layer: shared.number, route: is_pattern.then(|| Arc::clone(route)), begun: None }
    }

    /// The same, and from now on the time runs.
    pub(crate) fn timed(mut self, timings: Timings, clock: &dyn Clock) -> Self {
        self.begun = (timings == Timings::On).then(|| clock.now());
        self
    }

    /// A write without a key is passed on. Counted where somebody declared the route: there it is probably not meant.
    pub(crate) fn unkeyed(shared: &Shared, route: &Route) {
        if let Some(label) = &route.label {
            Self::new(shared, label, true).count(Tally::Unkeyed, &**route.once.clock());
        }
    }

    pub(crate) fn count(&self, what: Tally, clock: &dyn Clock) {
        let result = match what {
            Tally::Executed => "executed",
            Tally::Released => "released",
            Tally::Unknown => "unknown",
            Tally::Replayed => "replayed",
            Tally::FailedOpen => "failed_open",
            Tally::Unkeyed => UNKEYED,
            Tally::Problem(name) => name,
        };
        let took = self.begun.map(|begun| clock.now().since(begun));
        HANDLES.with_borrow_mut(|handles| handles.find(self, result).record(took));
    }
}

/// Finding a counter by its labels costs more than counting. So each thread keeps those that it used.
#[derive(Default)]
struct Handles(Vec<Handle>);

struct Handle {
    /// The recorder that it belongs to: one that is installed later, or for one thread only, has others.
    recorder: usize,
    layer: u64,
    route: Option<Arc<str>>,
    result: &'static str,
    requests: metrics::Counter,
    seconds: Option<metrics::Histogram>,
}

const UNKEYED: &str = "unkeyed";

thread_local! {
    static HANDLES: RefCell<Handles> = RefCell::default();
}

/// More are rarely used at a time; then they are found anew.
const MOST_HANDLES: usize = 64;

impl Handles {
    fn find(&mut self, meter: &Meter, result: &'static str) -> &mut Handle {
        let recorder = metrics::with_recorder(|recorder| std::ptr::from_ref(recorder).addr());
        let is_it = |handle: &Handle| {
            handle.layer == meter.layer
                && handle.recorder == recorder
                && handle.result == result
                && handle.route == meter.route
        };
        let place = self.0.iter().position(is_it).unwrap_or_else(|| {
            if self.0.len() >= MOST_HANDLES {
                self.0.clear();
            }
            let (layer, route) = (meter.layer, meter.route.clone());
            let requests = match result {
                // Not among those with a key.
                UNKEYED => metrics::counter!("onlyonce_unkeyed_total", "route" => name(&route)),
                _ => {
                    metrics::counter!("onlyonce_requests_total", "route" => name(&route), "result" => result)
                }
            };
            self.0.push(Handle { recorder, layer, route, result, requests, seconds: None });
            self.0.len() - 1
        });
        &mut self.0[place]
    }
}

impl Handle {
    fn record(&mut self, took: Option<Duration>) {
        self.requests.increment(1);
        if let Some(took) = took {
            let seconds = self.seconds.get_or_insert_with(|| {
                metrics::histogram!("onlyonce_request_seconds", "route" => name(&self.route), "result" => self.result)
            });
            seconds.record(took);
        }
    }
}

fn name(route: &Option<Arc<str>>) -> metrics::SharedString {
    route.as_ref().map_or("other".into(), |route| Arc::clone(route).into())
}

#[cfg(test)]
mod tests {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    use onlyonce_core::SystemClock;

    use super::*;

    #[test]
    fn every_recorder_gets_its_own_counts_from_one_thread() {
        let meter = Meter { layer: u64::MAX, route: Some("POST /orders".into()), begun: None };
        let recorders = [DebuggingRecorder::new(), DebuggingRecorder::new()];
        for _ in 0..2 {
            for recorder in &recorders {
                metrics::with_local_recorder(recorder, || meter.count(Tally::Executed, &SystemClock));
            }
        }
        for recorder in recorders {
            let counted = recorder.snapshotter().snapshot().into_vec();
            let [(key, .., DebugValue::Counter(2))] = &counted[..] else { panic!("{counted:?}") };
            let labels: Vec<_> = key.key().labels().map(|label| (label.key(), label.value())).collect();
            assert_eq!(labels, [("route", "POST /orders"), ("result", "executed")]);
        }
    }
}
