//! Rows with a goal beside the figure.

use std::fs;
use std::path::PathBuf;

use serde::Serialize;

/// One figure: a ratio, its goal, and how far the rounds were apart.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    row: &'static str,
    case: String,
    ratio: f64,
    goal: String,
    holds: bool,
    spread: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Report(Vec<Row>);

/// What a figure should be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Report {
    /// Adds the median of `figures`, which are one per round.
    pub(crate) fn add(&mut self, row: &'static str, case: &str, figures: &[f64], goal: Goal) {
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

    pub(crate) fn print(&self) {
        println!("{:<4} {:<58} {:>9} {:>9} {:>7} {:>9}", "row", "case", "figure", "goal", "holds", "spread");
        for Row { row, case, ratio, goal, holds, spread } in &self.0 {
            let holds = if *holds { "yes" } else { "NO" };
            println!("{row:<4} {case:<58} {ratio:>9.2} {goal:>9} {holds:>7} {spread:>9.2}");
        }
    }

    pub(crate) fn write(&self) -> std::io::Result<()> {
        // Told by `cargo xtask bench`, which gathers the rows of several programs.
        let file = std::env::var_os("ONLYONCE_BENCH_SUMMARY")
            .map_or_else(|| "target/bench/summary.json".into(), PathBuf::from);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(file, serde_json::to_vec_pretty(&self.0)?)
    }
}
