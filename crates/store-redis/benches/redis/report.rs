//! Rows with a goal beside the figure.

/// What a figure should be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Debug)]
struct Row {
    row: &'static str,
    case: String,
    ratio: f64,
    goal: String,
    holds: bool,
    spread: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Report(Vec<Row>);

impl Report {
    /// Adds the median of `figures`, one a round.
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

    /// Prints the table for people and the rows for programs.
    pub(crate) fn finish(&self) {
        eprintln!("{:<4} {:<58} {:>9} {:>9} {:>7} {:>9}", "row", "case", "figure", "goal", "holds", "spread");
        for Row { row, case, ratio, goal, holds, spread } in &self.0 {
            let holds = if *holds { "yes" } else { "NO" };
            eprintln!("{row:<4} {case:<58} {ratio:>9.2} {goal:>9} {holds:>7} {spread:>9.2}");
        }
        let rows: Vec<_> = self.0.iter().map(Row::json).collect();
        rows.iter().for_each(|row| println!("{row}"));
        if let Ok(file) = std::env::var("ONLYONCE_BENCH_SUMMARY") {
            if let Some(folder) = std::path::Path::new(&file).parent() {
                std::fs::create_dir_all(folder).unwrap();
            }
            std::fs::write(file, format!("[\n{}\n]\n", rows.join(",\n"))).unwrap();
        }
    }
}

impl Row {
    fn json(&self) -> String {
        let Self { row, case, ratio, goal, holds, spread } = self;
        // Cases and goals are our own words, without quotes.
        format!(
            r#"{{"row":"{row}","case":"{case}","ratio":{ratio:.4},"goal":"{goal}","holds":{holds},"spread":{spread:.4}}}"#
        )
    }
}
