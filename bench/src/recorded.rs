//! Counts beside those that were recorded.

use std::collections::BTreeMap;
use std::process::ExitCode;

use onlyonce_bench_report::{Goal, Report};

use crate::case::{Case, Least};

/// How much a count may grow before it has to be recorded again, with a reason.
const GROWTH: f64 = 1.05;
/// The same for what also depends on when threads and servers get their turn: it differs by a tenth between two runs.
const GROWTH_BY_CHANCE: f64 = 1.2;
/// How often a case is run when it is recorded, and at most before it is said to have grown.
const RUNS: usize = 4;
/// Beside the recorded ones, in the repository.
const FILE: &str = "bench/counts.json";

/// Prints each beside the recorded one, and fails where one grew or is not recorded.
pub(crate) fn judge(cases: &[Case]) -> ExitCode {
    let recorded = read();
    let mut report = Report::default();
    let mut grown = Vec::new();
    for case in cases {
        let mut least = Least::default();
        for _ in 0..RUNS {
            case.run(&mut least);
            if case.of_a_call(&least).iter().all(|(count, figure)| *figure <= most(&recorded, count)) {
                break;
            }
        }
        for (count, figure) in case.of_a_call(&least) {
            let most = most(&recorded, &count);
            report.add("n", &count, &[figure], Goal::AtMost(most));
            if figure > most {
                grown.push(count);
            }
        }
    }
    report.finish().expect("the summary is written");
    if grown.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "\n{} counts are above what they may be, or were never recorded:\n  {}\n\nIf that is the price of \
         something that is worth it, record them and say why: cargo xtask bench --counts --record",
        grown.len(),
        grown.join("\n  ")
    );
    ExitCode::FAILURE
}

/// What a count may be. Another processor has other instructions, so these are not judged there.
fn most(recorded: &BTreeMap<String, f64>, count: &str) -> f64 {
    if cfg!(not(target_arch = "x86_64")) && count.ends_with(": instructions") {
        return f64::INFINITY;
    }
    let growth = if is_by_chance(count) { GROWTH_BY_CHANCE } else { GROWTH };
    recorded.get(count).map_or(0.0, |recorded| (recorded * growth * 10.0).round() / 10.0)
}

/// Whether a count is one of several threads, or of a connection that is looked at now and then, and not one that is the same every time:
/// allocations, syncs and round trips.
fn is_by_chance(count: &str) -> bool {
    let (case, what) = count.split_once(": ").unwrap_or((count, ""));
    let has_threads = ["gateway", "mysql", "postgres", "sqlite"].iter().any(|place| case.starts_with(place));
    has_threads && !["allocations", "syncs", "round trips"].contains(&what)
}

/// Writes them as what later ones are held against.
pub(crate) fn record(cases: &[Case]) -> ExitCode {
    let before = read();
    let mut counts = BTreeMap::new();
    for case in cases {
        let mut least = Least::default();
        (0..RUNS).for_each(|_| case.run(&mut least));
        counts.extend(case.of_a_call(&least));
    }
    for (count, figure) in &counts {
        let change = before.get(count).map_or(String::new(), |before| format!("  (was {before:.1})"));
        println!("{count:<52} {figure:>10.1}{change}");
    }
    let text = serde_json::to_string_pretty(&counts).expect("numbers are JSON");
    std::fs::write(FILE, text + "\n").expect("the counts are written");
    ExitCode::SUCCESS
}

fn read() -> BTreeMap<String, f64> {
    let text = std::fs::read_to_string(FILE).unwrap_or_else(|_| "{}".to_owned());
    serde_json::from_str(&text).expect("bench/counts.json is a map of numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_may_grow_by_five_percent_and_one_that_was_never_recorded_not_at_all() {
        let recorded = BTreeMap::from([("layer: allocations".to_owned(), 40.0)]);
        assert_eq!(most(&recorded, "layer: allocations"), 42.0);
        assert_eq!(most(&recorded, "layer: round trips"), 0.0);
        let threads = ["gateway, unkeyed: instructions", "gateway, unkeyed: allocations"];
        let recorded = threads.map(|count| (count.to_owned(), 100.0)).into();
        assert_eq!(threads.map(|count| most(&recorded, count)), [120.0, 105.0]);
    }
}
