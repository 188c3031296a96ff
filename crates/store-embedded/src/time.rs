//! The two clocks: what must survive a restart is on the wall, leases are on the steady one.

use std::sync::Arc;

use onlyonce_core::machine::Record;
use onlyonce_core::{Clock, Moment};

use crate::leases::Lease;

#[derive(Debug)]
pub(crate) struct Time {
    pub(crate) clock: Arc<dyn Clock>,
    /// When the store was opened: orphans lapsed then at the latest.
    opened: Moment,
}

/// One moment on both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) steady: Moment,
    pub(crate) wall: Moment,
}

impl Time {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let opened = Moment::from_micros(clock.wall_micros());
        Self { clock, opened }
    }

    pub(crate) fn now(&self) -> Now {
        Now { steady: self.clock.now(), wall: Moment::from_micros(self.clock.wall_micros()) }
    }

    /// The record with its lease as it is now. The machine knows one time line, so the lease is put on that of the wall,
    /// anew at every look: a wall clock that is set moves no lease.
    pub(crate) fn with_lease(&self, mut record: Record, lease: Option<Lease>, now: Now) -> Record {
        if record.settled.is_none() {
            record.lease_until = match lease {
                Some(lease) if lease.fence == record.fence => on_wall(lease.until, now),
                // An orphan, or about to be taken over.
                _ => record.lease_until.min(self.opened).min(now.wall),
            };
        }
        record
    }
}

fn on_wall(moment: Moment, now: Now) -> Moment {
    if moment >= now.steady {
        now.wall.plus(moment.since(now.steady))
    } else {
        Moment::from_micros(now.wall.as_micros().saturating_sub(now.steady.since(moment).as_micros() as u64))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lease_keeps_its_distance_on_the_wall() {
        let now = Now { steady: Moment::from_micros(100), wall: Moment::from_micros(5_000) };
        assert_eq!(on_wall(Moment::from_micros(130), now), now.wall.plus(Duration::from_micros(30)));
        assert_eq!(on_wall(Moment::from_micros(70), now).as_micros(), 4_970);
        let small = Now { steady: Moment::from_micros(100), wall: Moment::from_micros(5) };
        assert_eq!(on_wall(Moment::from_micros(0), small).as_micros(), 0);
    }
}
