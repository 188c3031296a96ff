//! The time line of records that outlive a process: it goes on while nobody runs, and whoever sets the wall clock does not
//! move it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Moment, Uptime};

/// A wall clock that moves by more than this against the time that passed was set.
const STEP: Duration = Duration::from_secs(60);
/// How often the clocks are compared with the time since the boot, which costs a little.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How often the time is noted: after a boot it goes on from the last note.
const NOTE_EVERY: Duration = Duration::from_secs(600);
/// Of the time between the last note and another boot only so much counts: nobody can tell a machine that was off from a
/// clock that was set.
const MOST_BETWEEN_BOOTS: Duration = Duration::from_secs(3600);

/// The time of records: that of the wall clock when a store is first used, and from then on the time that really passed.
///
/// Within one run of the machine that is the time since its boot, over restarts of the process too. From one boot to the next the wall
/// clock is all there is, and counts for an hour at most.
///
/// ```
/// use onlyonce_core::{ManualClock, Timeline};
/// use std::sync::Arc;
/// let clock = ManualClock::new();
/// let time = Timeline::resume(Arc::new(clock.clone()), None);
/// let before = time.now();
/// clock.advance(std::time::Duration::from_secs(7));
/// assert_eq!(time.now().since(before).as_secs(), 7);
/// ```
#[derive(Debug)]
pub struct Timeline {
    clock: Arc<dyn Clock>,
    /// What is added to the steady clock, modulo 2⁶⁴.
    shift: AtomicU64,
    /// How far the wall clock is from the steady one, modulo 2⁶⁴.
    wall_shift: AtomicU64,
    /// When the clocks are compared next, on the steady clock.
    look_at: AtomicU64,
    /// When the time is to be noted next, on the steady clock.
    note_at: AtomicU64,
    /// When the wall clock was last seen to be set forward, on this line.
    stepped: AtomicU64,
    anchor: Mutex<Anchor>,
}

/// The time at one moment. Kept with the records, it lets their time go on where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeNote {
    /// The run of the machine, where it is known.
    pub uptime: Option<Uptime>,
    /// The wall clock, in microseconds since 1970.
    pub wall: u64,
    /// The time of records.
    pub time: Moment,
    /// The time of records when the wall clock was last seen to be set forward; zero if it never was.
    pub stepped: Moment,
}

#[derive(Debug, Clone, Copy)]
struct Anchor {
    note: TimeNote,
    steady: Moment,
}

impl Timeline {
    /// Goes on after `note`, which was kept with the records; without one, at the time of the wall clock.
    #[must_use]
    pub fn resume(clock: Arc<dyn Clock>, note: Option<TimeNote>) -> Self {
        let (uptime, wall, steady) = (clock.uptime(), clock.wall_micros(), clock.now());
        let new = |time, stepped| TimeNote { uptime, wall, time, stepped };
        let next = match note {
            None => new(Moment::from_micros(wall), Moment::from_micros(0)),
            Some(note) => match note.passed(uptime) {
                Some(passed) => note.after(passed, uptime, wall),
                None => new(note.time.plus(note.between_boots(wall)), note.stepped),
            },
        };
        let anchor = Anchor { note: next, steady };
        let zero = || AtomicU64::new(0);
        let (shift, wall_shift, look_at, note_at, stepped) = (zero(), zero(), zero(), zero(), zero());
        let timeline =
            Self { clock, shift, wall_shift, look_at, note_at, stepped, anchor: Mutex::new(anchor) };
        timeline.set(anchor);
        timeline
    }

    /// The time of records.
    pub fn now(&self) -> Moment {
        self.at(self.clock.now())
    }

    /// The time of records at this moment of the steady clock, which has just been read.
    pub fn at(&self, steady: Moment) -> Moment {
        let wall_shift = self.clock.wall_micros().wrapping_sub(steady.as_micros());
        let moved = wall_shift.wrapping_sub(self.wall_shift.load(Ordering::Relaxed)).cast_signed();
        if is_step(moved) || is_due(steady, self.look_at.load(Ordering::Relaxed), LOOK_EVERY) {
            self.look();
        }
        Moment::from_micros(steady.as_micros().wrapping_add(self.shift.load(Ordering::Relaxed)))
    }

    /// When the wall clock was last seen to be set forward; zero if it never was. What is older is kept
    /// [for longer](crate::machine::Record::kept_since).
    pub fn stepped(&self) -> Moment {
        Moment::from_micros(self.stepped.load(Ordering::Relaxed))
    }

    /// What is to be kept with the records now, if it is time for it; see [`noted`](Self::noted).
    pub fn to_note(&self) -> Option<TimeNote> {
        if !is_due(self.clock.now(), self.note_at.load(Ordering::Acquire), NOTE_EVERY) {
            return None;
        }
        self.look();
        Some(self.anchor.lock().note)
    }

    /// Says that the records have this note.
    pub fn noted(&self, note: &TimeNote) {
        let anchor = self.anchor.lock();
        // Else the clock was set meanwhile, and that is to be noted too.
        if anchor.note.stepped == note.stepped {
            self.note_at.store(anchor.steady.plus(NOTE_EVERY).as_micros(), Ordering::Release);
        }
    }

    /// Compares the clocks, and goes on by the one that nobody can set.
    #[cold]
    fn look(&self) {
        let mut anchor = self.anchor.lock();
        let (uptime, wall, steady) = (self.clock.uptime(), self.clock.wall_micros(), self.clock.now());
        let passed = anchor.note.passed(uptime).unwrap_or_else(|| steady.since(anchor.steady));
        if is_step(anchor.note.wall_moved(passed, wall)) {
            self.note_at.store(0, Ordering::Release);
        }
        *anchor = Anchor { note: anchor.note.after(passed, uptime, wall), steady };
        self.set(*anchor);
    }

    fn set(&self, Anchor { note, steady }: Anchor) {
        let from_steady = |time: u64| time.wrapping_sub(steady.as_micros());
        self.shift.store(from_steady(note.time.as_micros()), Ordering::Relaxed);
        self.wall_shift.store(from_steady(note.wall), Ordering::Relaxed);
        self.look_at.store(steady.plus(LOOK_EVERY).as_micros(), Ordering::Relaxed);
        self.stepped.store(note.stepped.as_micros(), Ordering::Relaxed);
    }
}

impl TimeNote {
    /// What passed since, if this is the same run of the machine.
    fn passed(&self, uptime: Option<Uptime>) -> Option<Duration> {
        let (then, now) = self.uptime.zip(uptime)?;
        let is_same = then.boot == now.boot && then.since_boot <= now.since_boot;
        is_same.then(|| now.since_boot.since(then.since_boot))
    }

    /// What counts of the time since, which ended in another run of the machine, or in nobody knows which.
    fn between_boots(&self, wall: u64) -> Duration {
        let by_wall = Duration::from_micros(wall.saturating_sub(self.wall));
        if by_wall <= MOST_BETWEEN_BOOTS {
            return by_wall;
        }
        tracing::warn!(
            hours = by_wall.as_secs() / 3600,
            "by its clock this machine was off for long, or its clock was set; records are kept as if it had been an hour"
        );
        MOST_BETWEEN_BOOTS
    }

    /// The note of the moment when so much has passed, and the clocks show this.
    fn after(&self, passed: Duration, uptime: Option<Uptime>, wall: u64) -> Self {
        let (time, moved) = (self.time.plus(passed), self.wall_moved(passed, wall));
        if !is_step(moved) {
            return Self { uptime, wall, time, stepped: self.stepped };
        }
        let (way, seconds) = (if moved > 0 { "forward" } else { "back" }, moved.unsigned_abs() / 1_000_000);
        tracing::warn!(
            seconds,
            "the clock of this machine was set {way}; records expire by the time that really passes, not by that clock"
        );
        Self { uptime, wall, time, stepped: if moved > 0 { time } else { self.stepped } }
    }

    /// By how many microseconds the wall clock moved beyond the time that passed.
    fn wall_moved(&self, passed: Duration, wall: u64) -> i64 {
        wall.wrapping_sub(self.wall).wrapping_sub(micros(passed)).cast_signed()
    }
}

/// Whether what is done every so often is due, which comes next at `next`. A clock that never steps back does so where somebody fakes
/// it: then, too.
fn is_due(steady: Moment, next: u64, every: Duration) -> bool {
    let left = next.saturating_sub(steady.as_micros());
    left == 0 || left > micros(every) + micros(STEP)
}

fn is_step(moved: i64) -> bool {
    moved.unsigned_abs() > micros(STEP)
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
