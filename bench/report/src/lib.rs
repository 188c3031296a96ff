//! How every program that measures says what it found: a table for people, and rows for `cargo xtask bench`.
//!
//! ```no_run
//! use onlyonce_bench_report::{Goal, Report};
//! let mut report = Report::default();
//! // One figure a round; the median counts.
//! report.add("P1", "with / without", &[0.79, 0.81, 0.80], Goal::AtLeast(0.75));
//! report.finish().expect("a place to write to");
//! ```

use std::path::PathBuf;
use std::{fs, io};

use serde::Serialize;

/// How long a program may measure, from its command line: `--moment` shows only that it still works, `--quick` roughly where
/// we are, and without either the figures are worth keeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// As little as makes a figure.
    Moment,
    /// Fewer and shorter rounds.
    Quick,
    /// All rounds.
    Full,
}

impl Length {
    /// The length that this process was asked for.
    #[must_use]
    pub fn from_args() -> Self {
        let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
        match (asked("--moment"), asked("--quick")) {
            (true, _) => Self::Moment,
            (_, true) => Self::Quick,
            _ => Self::Full,
        }
    }

    /// The one of three that belongs to this length.
    pub fn pick<T>(self, moment: T, quick: T, full: T) -> T {
        match self {
            Self::Moment => moment,
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// What a figure should be.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// It should not be smaller.
    AtLeast(f64),
    /// It should not be bigger.
    AtMost(f64),
}

/// One figure: a ratio, its goal, and how far the rounds were apart.
#[derive(Debug, Serialize)]
struct Row {
    row: &'static str,
    case: String,
    ratio: f64,
    goal: String,
    holds: bool,
    spread: f64,
}

/// Rows with a goal beside the figure.
#[derive(Debug, Default)]
pub struct Report(Vec<Row>);

impl Report {
    /// Adds the median of `figures`, one a round.
    ///
    /// # Panics
    /// Without a figure.
    pub fn add(&mut self, row: &'static str, case: &str, figures: &[f64], goal: Goal) {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let ratio = sorted[sorted.len() / 2];
        let spread = sorted[sorted.len() - 1] - sorted[0];
        let (goal, holds) = match goal {
            Goal::AtLeast(least) => (format!(">= {least}"), ratio >= least),
            Goal::AtMost(most) => (format!("<= {most}"), ratio <= most),
        };
        self.0.push(Row { row, case: case.into(), ratio, goal, holds, spread });
    }

    /// Prints the table, and writes the rows to the file named by `ONLYONCE_BENCH_SUMMARY`
    /// (`target/bench/summary.json` if there is none).
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn finish(&self) -> io::Result<()> {
        println!("{:<4} {:<58} {:>9} {:>9} {:>7} {:>9}", "row", "case", "figure", "goal", "holds", "spread");
        for Row { row, case, ratio, goal, holds, spread } in &self.0 {
            let holds = if *holds { "yes" } else { "NO" };
            println!("{row:<4} {case:<58} {ratio:>9.2} {goal:>9} {holds:>7} {spread:>9.2}");
        }
        let file = std::env::var_os("ONLYONCE_BENCH_SUMMARY")
            .map_or_else(|| "target/bench/summary.json".into(), PathBuf::from);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(file, serde_json::to_vec_pretty(&self.0)?)
    }
}
