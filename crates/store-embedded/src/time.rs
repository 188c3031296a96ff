//! The two lines of time: what must survive a restart is on that of the records, leases are on the steady clock.

use std::sync::Arc;

use onlyonce_core::machine::Record;
use onlyonce_core::{Clock, Moment, TimeNote, Timeline};

use crate::leases::Lease;

#[derive(Debug)]
pub(crate) struct Time {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) records: Timeline,
    /// When the store was opened: orphans lapsed then at the latest.
    opened: Moment,
}

/// One moment on both lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// On the steady clock, for leases.
    pub(crate) steady: Moment,
    /// On the line of the records.
    pub(crate) moment: Moment,
}

impl Time {
    pub(crate) fn new(clock: Arc<dyn Clock>, note: Option<TimeNote>) -> Self {
        let records = Timeline::resume(Arc::clone(&clock), note);
        let opened = records.now();
        Self { clock, records, opened }
    }

    pub(crate) fn now(&self) -> Now {
        let steady = self.clock.now();
        Now { steady, moment: self.records.at(steady) }
    }

    /// The record as it is kept, which a clock that was set forward prolongs.
    pub(crate) fn kept(&self, record: Record) -> Record {
        record.kept_since(self.records.stepped())
    }

    /// Until when an open record is kept at least, by what its list says.
    pub(crate) fn kept_until(&self, created: u64, expires: u64) -> u64 {
        let stepped = self.records.stepped().as_micros();
        if created >= stepped {
            expires
        } else {
            expires.max(stepped.min(expires).saturating_add(expires.saturating_sub(created)))
        }
    }

    /// Whether the record is older than a clock that was set forward.
    pub(crate) fn is_kept_longer(&self, record: &Record) -> bool {
        record.written() < self.records.stepped()
    }

    /// The record as it is kept, with its lease as it is now. The machine knows one line of time, so the lease is put on that of the
    /// records, anew at every look.
    pub(crate) fn with_lease(&self, record: Record, lease: Option<Lease>, now: Now) -> Record {
        let mut record = self.kept(record);
        if record.settled.is_none() {
            record.lease_until = match lease {
                Some(lease) if lease.fence == record.fence => on_line(lease.until, now),
                // An orphan, or about to be taken over.
                _ => record.lease_until.min(self.opened).min(now.moment),
            };
        }
        record
    }
}

fn on_line(moment: Moment, now: Now) -> Moment {
    if moment >= now.steady {
        now.moment.plus(moment.since(now.steady))
    } else {
        Moment::from_micros(
            now.moment.as_micros().saturating_sub(now.steady.since(moment).as_micros() as u64),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lease_keeps_its_distance_on_the_line_of_the_records() {
        let now = Now { steady: Moment::from_micros(100), moment: Moment::from_micros(5_000) };
        assert_eq!(on_line(Moment::from_micros(130), now), now.moment.plus(Duration::from_micros(30)));
        assert_eq!(on_line(Moment::from_micros(70), now).as_micros(), 4_970);
        let small = Now { steady: Moment::from_micros(100), moment: Moment::from_micros(5) };
        assert_eq!(on_line(Moment::from_micros(0), small).as_micros(), 0);
    }
}
