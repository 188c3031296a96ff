//! Points at which a test may let the process die, in one place.
//!
//! With the feature `crash-points`, a process that is started with `ONLYONCE_CRASH_AT=<point>` aborts when it comes to that
//! point; with `ONLYONCE_CRASH_AT=<point>:<n>`, for the n-th time. Without the feature nothing is looked at.

/// A point of a same-transaction call at which the process may die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CrashPoint {
    /// The transaction has begun, and is empty.
    Begun,
    /// The claim is written, and not committed.
    Claimed,
    /// The handler has ended; nothing is settled.
    Handled,
    /// The answer is settled and committed; nobody was answered.
    Committed,
    /// A business refusal was rolled back, and is not recorded.
    Refused,
}

impl CrashPoint {
    /// All points, for a harness to go through.
    pub const ALL: [Self; 5] = [Self::Begun, Self::Claimed, Self::Handled, Self::Committed, Self::Refused];

    /// The variable that switches a point on.
    pub const VARIABLE: &'static str = "ONLYONCE_CRASH_AT";

    /// The name by which the variable knows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Claimed => "claimed",
            Self::Handled => "handled",
            Self::Committed => "committed",
            Self::Refused => "refused",
        }
    }

    /// Dies here if a test asked for it.
    #[cfg(feature = "crash-points")]
    pub(crate) fn pass(self) {
        use std::sync::OnceLock;
        use std::sync::atomic::{AtomicU32, Ordering};

        static ASKED: OnceLock<Option<(String, u32)>> = OnceLock::new();
        static PASSED: AtomicU32 = AtomicU32::new(0);
        let asked = ASKED.get_or_init(|| {
            let asked = std::env::var(Self::VARIABLE).ok()?;
            let (name, count) = asked.split_once(':').unwrap_or((&asked, "1"));
            Some((name.to_owned(), count.parse().ok()?))
        });
        if let Some((name, count)) = asked
            && name == self.name()
            && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == *count
        {
            std::process::abort();
        }
    }

    /// Dies here if a test asked for it.
    #[cfg(not(feature = "crash-points"))]
    pub(crate) const fn pass(self) {}
}
