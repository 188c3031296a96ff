//! The rows of `target/bench/summary.json`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One measured ratio beside its goal. Only what is needed to judge it is typed; the rest is passed on as it came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    row: String,
    case: String,
    ratio: f64,
    goal: Value,
    holds: bool,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

pub(crate) fn parse(text: &str) -> Result<Vec<Row>, serde_json::Error> {
    serde_json::from_str(text)
}

/// One row a line, so that two summaries can be compared by eye.
pub(crate) fn text(rows: &[Row]) -> Result<String, serde_json::Error> {
    let lines: Vec<String> = rows.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}

/// Which goals do not hold, in words.
pub(crate) fn verdict(rows: &[Row]) -> String {
    let missed: Vec<&Row> = rows.iter().filter(|row| !row.holds).collect();
    match (rows.len(), missed.len()) {
        (0, _) => "Nothing was measured.".to_owned(),
        (all, 0) => format!("All {all} goals hold."),
        (all, some) => {
            let lines: String = missed.into_iter().map(line).collect();
            format!("{some} of {all} goals do NOT hold, on this machine in this run:{lines}")
        }
    }
}

fn line(Row { row, case, ratio, goal, .. }: &Row) -> String {
    let goal = goal.as_str().map_or_else(|| goal.to_string(), str::to_owned);
    format!("\n  {row} {case}: {ratio:.2}, goal {goal}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"[
        {"row": "P1", "case": "first runs", "ratio": 0.81, "goal": 0.75, "holds": true, "spread": [0.79, 0.83]},
        {"row": "P1", "case": "replays", "ratio": 0.8, "goal": "≥ 0.85", "holds": false, "spread": 0.04}
    ]"#;

    #[test]
    fn missed_goals_are_named() {
        let rows = parse(ROWS).unwrap();
        assert_eq!(
            verdict(&rows),
            "1 of 2 goals do NOT hold, on this machine in this run:\n  P1 replays: 0.80, goal ≥ 0.85"
        );
        assert_eq!(verdict(&rows[..1]), "All 1 goals hold.");
        assert_eq!(verdict(&[]), "Nothing was measured.");
    }

    #[test]
    fn rows_are_written_as_they_came() {
        let rows = parse(ROWS).unwrap();
        assert_eq!(parse(&text(&rows).unwrap()).unwrap(), rows);
    }

    #[test]
    fn a_row_without_a_verdict_is_refused() {
        assert!(parse(r#"[{"row": "P1", "case": "", "ratio": 1.0, "goal": 1.0}]"#).is_err());
    }
}
