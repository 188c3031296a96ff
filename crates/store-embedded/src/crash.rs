//! Points at which a test may let the process die, in one place.
//!
//! With the feature `crash-points`, a process that is started with `ONLYONCE_CRASH_AT=<point>` or `<point>:<n>` aborts when
//! it comes to that point for the first or n-th time. Without the feature, which is the default, nothing is looked at.

/// A point at which the process may die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CrashPoint {
    /// The directory is made, the store in it not yet.
    Creating,
    /// The journals were checked, the engine has not read them.
    Recovering,
    /// The engine has recovered, nobody was served.
    Recovered,
    /// A batch was decided, nothing of it is written.
    BeforeWrite,
    /// A batch is written and not synced.
    BeforeSync,
    /// A batch is synced and not noted.
    BeforeNote,
    /// A batch is noted, nobody was answered.
    BeforeAnswer,
    /// Everybody was answered.
    AfterAnswer,
}

impl CrashPoint {
    /// All points, for a harness to go through.
    ///
    /// ```
    /// use onlyonce_store_embedded::CrashPoint;
    /// assert!(CrashPoint::ALL.iter().any(|point| point.name() == "before-sync"));
    /// ```
    pub const ALL: [Self; 8] = [
        Self::Creating,
        Self::Recovering,
        Self::Recovered,
        Self::BeforeWrite,
        Self::BeforeSync,
        Self::BeforeNote,
        Self::BeforeAnswer,
        Self::AfterAnswer,
    ];

    /// The variable that switches a point on.
    pub const VARIABLE: &'static str = "ONLYONCE_CRASH_AT";

    /// The name by which the variable knows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Recovering => "recovering",
            Self::Recovered => "recovered",
            Self::BeforeWrite => "before-write",
            Self::BeforeSync => "before-sync",
            Self::BeforeNote => "before-note",
            Self::BeforeAnswer => "before-answer",
            Self::AfterAnswer => "after-answer",
        }
    }

    /// Dies here if a test asked for it.
    pub(crate) fn pass(self) {
        if self.is_due() {
            std::process::abort();
        }
    }

    /// Whether this is the time to die, for a point that lies within the engine.
    #[cfg(feature = "crash-points")]
    pub(crate) fn is_due(self) -> bool {
        use std::sync::OnceLock;
        use std::sync::atomic::{AtomicU32, Ordering};

        static ASKED: OnceLock<Option<(String, u32)>> = OnceLock::new();
        static PASSED: AtomicU32 = AtomicU32::new(0);
        let asked = ASKED.get_or_init(|| {
            let asked = std::env::var(Self::VARIABLE).ok()?;
            let (name, count) = asked.split_once(':').unwrap_or((&asked, "1"));
            Some((name.to_owned(), count.parse().ok()?))
        });
        match asked {
            Some((name, count)) if name == self.name() => {
                PASSED.fetch_add(1, Ordering::Relaxed) + 1 == *count
            }
            _ => false,
        }
    }

    #[cfg(not(feature = "crash-points"))]
    pub(crate) const fn is_due(self) -> bool {
        false
    }
}
