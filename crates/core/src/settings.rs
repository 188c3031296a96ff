//! How calls are treated, and what one call wants.

use std::sync::Arc;
use std::time::Duration;

use crate::error::InputError;
use crate::fingerprint::Fingerprint;
use crate::policy::{Mode, OnLapse, Rules};
use crate::record::Label;

/// How calls are treated. Start from [`Settings::default`] and change what differs.
///
/// ```
/// use onlyonce_core::{Idempotency, MemoryStore, Settings};
/// use std::time::Duration;
/// let settings = Settings { wait: Duration::from_secs(2), ..Settings::default() };
/// let once = Idempotency::builder(MemoryStore::new()).settings(settings).build()?;
/// let absurd = Settings { lease: Duration::ZERO, ..Settings::default() };
/// assert!(once.with_settings(absurd).is_err());
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// What a duplicate gets (Replay).
    pub mode: Mode,
    /// What becomes of an attempt that ended without a word (Hold).
    pub on_lapse: OnLapse,
    /// How long an attempt may be silent (30 s); it is renewed at a third of this.
    pub lease: Duration,
    /// For how long an attempt is renewed (10 min); after that its lease runs out.
    pub max_run: Duration,
    /// How long a completed record is kept, from completion (24 h).
    pub retain: Duration,
    /// How long any other record is kept, from its begin or its settlement (30 d). Longer than the longest run, or an
    /// attempt that died late would leave no trace and run again.
    pub retain_unsettled: Duration,
    /// How long a duplicate waits for the answer of the call that runs (0 s).
    pub wait: Duration,
    /// The largest answer that is stored, in bytes (1 MiB).
    pub max_answer: usize,
}

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The shortest lease: below this, scheduling noise alone would lose it.
const MIN_LEASE: Duration = Duration::from_millis(10);
/// The longest span of any kind: ten years. More is a mistake in a unit.
pub(crate) const MAX_SPAN: Duration = Duration::from_secs(10 * 366 * 24 * 3600);
const MAX_WAIT: Duration = Duration::from_secs(3600);

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Replay,
            on_lapse: OnLapse::Hold,
            lease: 30 * SECOND,
            max_run: 600 * SECOND,
            retain: DAY,
            retain_unsettled: 30 * DAY,
            wait: Duration::ZERO,
            max_answer: 1 << 20,
        }
    }
}

impl Settings {
    /// Checks that the settings make sense together.
    ///
    /// # Errors
    /// If a span is zero where it can't be, absurdly long, or shorter than one it must cover.
    pub fn validate(&self) -> Result<(), InputError> {
        span("lease", self.lease, MIN_LEASE, DAY)?;
        span("max_run", self.max_run, self.lease, MAX_SPAN)?;
        span("retain", self.retain, Duration::from_millis(1), MAX_SPAN)?;
        let longest_run = self.max_run.saturating_add(self.lease);
        span("retain_unsettled", self.retain_unsettled, longest_run, MAX_SPAN)?;
        span("wait", self.wait, Duration::ZERO, MAX_WAIT)?;
        if let OnLapse::Ask { after } = self.on_lapse {
            // Kept from its begin: a record that is gone when its time to ask has come would run unasked.
            let latest = self.retain_unsettled.saturating_sub(longest_run);
            span("ask_after", after, Duration::from_millis(1), latest)?;
        }
        if self.max_answer == 0 {
            return Err(InputError::new(
                "max_answer is 0; for a mode without stored answers use Mode::Reject",
            ));
        }
        Ok(())
    }

    pub(crate) fn rules(&self) -> Rules {
        Rules { mode: self.mode, on_lapse: self.on_lapse }
    }
}

pub(crate) fn span(name: &str, value: Duration, least: Duration, most: Duration) -> Result<(), InputError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let [value, least, most] = [value, least, most].map(shown);
    Err(InputError::new(format!("{name} is {value}; it must be between {least} and {most}")))
}

/// In the largest unit that keeps it whole: `30s`, `3660d`.
fn shown(span: Duration) -> String {
    const UNITS: [(&str, u128); 5] =
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let millis = span.as_millis();
    if millis == 0 || Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)) != span {
        return if span.is_zero() { "0s".into() } else { format!("{span:?}") };
    }
    let whole = UNITS.iter().find(|(_, unit)| millis.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{span:?}"), |(name, unit)| format!("{}{name}", millis / unit))
}

/// What one call wants: everything about it but its record id.
#[derive(Debug, Clone)]
pub struct Intent {
    /// The digest of its payload.
    pub fingerprint: Fingerprint,
    /// What may be shown of it.
    pub label: Label,
    /// How it is treated.
    pub settings: Arc<Settings>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_and_absurd_spans_are_refused_with_their_name_and_range() {
        type Damage = fn(&mut Settings);
        let broken: [(&str, Damage); 11] = [
            ("lease", |s| s.lease = Duration::ZERO),
            ("lease", |s| s.lease = Duration::MAX),
            ("max_run", |s| s.max_run = SECOND),
            ("retain", |s| s.retain = Duration::ZERO),
            ("retain", |s| s.retain = Duration::MAX),
            ("retain_unsettled", |s| s.retain_unsettled = SECOND),
            ("retain_unsettled", |s| s.retain_unsettled = s.max_run),
            ("wait", |s| s.wait = DAY),
            ("ask_after", |s| s.on_lapse = OnLapse::Ask { after: Duration::ZERO }),
            ("ask_after", |s| s.on_lapse = OnLapse::Ask { after: s.retain_unsettled }),
            ("max_answer", |s| s.max_answer = 0),
        ];
        for (name, damage) in broken {
            let mut settings = Settings::default();
            damage(&mut settings);
            let error = settings.validate().expect_err(name).to_string();
            assert!(error.starts_with(name), "{error}");
        }
        Settings::default().validate().unwrap();
    }

    #[test]
    fn spans_are_told_in_units_that_people_use() {
        for (span, text) in [
            (Duration::ZERO, "0s"),
            (MAX_SPAN, "3660d"),
            (90 * SECOND, "90s"),
            (DAY, "1d"),
            (Duration::from_millis(1500), "1500ms"),
            (Duration::from_micros(5), "5µs"),
        ] {
            assert_eq!(shown(span), text);
        }
    }
}
