//! Time, as something that is passed in.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// A point on a monotonic time line, in microseconds since an arbitrary origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// A moment that many microseconds after the origin.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the origin.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// This moment, later by `span`; at the far end of time it stays there.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// A future that ends when its time has come.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The only source of time in this crate.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Now, on a line that never steps back and goes on while the machine is suspended.
    fn now(&self) -> Moment;

    /// Microseconds since 1970 by the wall clock, which may be set back. For showing, and as a floor for fences.
    fn wall_micros(&self) -> u64;

    /// Ends after `span`.
    fn sleep(&self, span: Duration) -> Sleep;

    /// Which run of the machine this is, and for how long it has been up; `None` where nobody can say. By a source of its own where
    /// there is one: it judges the other two. It may cost a system call or two.
    fn uptime(&self) -> Option<Uptime> {
        None
    }
}

/// A run of the machine, from one boot to the next, and the time since its boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uptime {
    /// Names the boot.
    pub boot: [u8; 16],
    /// The time since, with the time that the machine was suspended.
    pub since_boot: Moment,
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Moment {
        // CLOCK_BOOTTIME, because a lease goes on expiring at the server while this machine sleeps.
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Moment((time.tv_sec.unsigned_abs()) * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Moment {
        static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        let origin = *ORIGIN.get_or_init(std::time::Instant::now);
        Moment(0).plus(origin.elapsed())
    }

    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    fn wall_micros(&self) -> u64 {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since_epoch.map_or(0, |span| u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
    }

    fn sleep(&self, span: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(span))
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn uptime(&self) -> Option<Uptime> {
        // Files of the kernel, not the C library, whose clocks may be replaced for a process.
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16).ok()?.to_be_bytes();
        let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
        let seconds: f64 = uptime.split_whitespace().next()?.parse().ok()?;
        let coarse = Moment((seconds * 1e6) as u64);
        // The same time as `now`, but in hundredths of a second: the finer one is taken unless it is another.
        let fine = self.now();
        let is_same = coarse.since(fine).max(fine.since(coarse)) < Duration::from_secs(1);
        Some(Uptime { boot, since_boot: if is_same { fine } else { coarse } })
    }
}

/// A clock that stands still until it is moved, for tests. Clones share the time.
///
/// ```
/// use onlyonce_core::{Clock, ManualClock};
/// use std::time::Duration;
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(30));
/// assert_eq!(clock.now().since(before), Duration::from_secs(30));
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock {
    elapsed: Arc<watch::Sender<Duration>>,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl ManualClock {
    /// The wall time at which every manual clock starts: 2024-01-01, in microseconds since 1970.
    pub const START_WALL_MICROS: u64 = 1_704_067_200_000_000;

    /// A clock at its start.
    #[must_use]
    pub fn new() -> Self {
        Self { elapsed: Arc::new(watch::Sender::new(Duration::ZERO)) }
    }

    /// Moves time forward and wakes whoever slept until then.
    pub fn advance(&self, span: Duration) {
        self.elapsed.send_modify(|elapsed| *elapsed = elapsed.saturating_add(span));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment(0).plus(*self.elapsed.borrow())
    }

    fn wall_micros(&self) -> u64 {
        Moment(Self::START_WALL_MICROS).plus(*self.elapsed.borrow()).0
    }

    fn sleep(&self, span: Duration) -> Sleep {
        let mut time = self.elapsed.subscribe();
        let until = time.borrow().saturating_add(span);
        Box::pin(async move {
            // An error means that the clock is gone: its time will never come.
            if time.wait_for(|elapsed| *elapsed >= until).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}
