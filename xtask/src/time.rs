//! Durations for people.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "xtask times real commands; no law depends on it")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    pub(crate) fn shown(&self) -> String {
        show(self.elapsed())
    }
}

/// `4.2 s`, `3 min 12 s`, `2 h 5 min`.
pub(crate) fn show(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(show(Duration::from_millis(4_230)), "4.2 s");
        assert_eq!(show(Duration::from_secs(192)), "3 min 12 s");
        assert_eq!(show(Duration::from_secs(7_500)), "2 h 5 min");
    }
}
