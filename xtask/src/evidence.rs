//! `docs/evidence.md`: a section for each soak, its newest run at the head of the table.

/// One run of a soak.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) date: String,
    pub(crate) revision: String,
    pub(crate) count: String,
    pub(crate) took: String,
    pub(crate) passed: bool,
}

const INTRO: &str = "\
# Evidence

The big counts of `cargo xtask soak`: the same tests as in `cargo xtask test`, run for longer. The tables are written by
that command, newest run first, failures included. A revision with a `+` had changes that were not committed.
";

const HEAD: &str = "\
| date (UTC) | revision | count | took | result |
|---|---|---|---|---|
";

/// The document with this run recorded. Everything else stays as it is, also text written by hand in the section.
pub(crate) fn record(document: &str, title: &str, about: &str, run: &Run) -> String {
    let document = if document.trim().is_empty() { INTRO } else { document };
    let heading = format!("## {title}\n");
    let Some(section) = position_of_line(document, &heading) else {
        return format!("{}\n\n{heading}\n{about}\n\n{HEAD}{}", document.trim_end(), line(run));
    };
    let body = section + heading.len();
    let end = document[body..].find("\n## ").map_or(document.len(), |next| body + next + 1);
    match document[body..end].find(HEAD) {
        Some(table) => {
            let (before, after) = document.split_at(body + table + HEAD.len());
            format!("{before}{}{after}", line(run))
        }
        None => {
            let (before, after) = document.split_at(end);
            let gap = if after.is_empty() { "" } else { "\n" };
            format!("{}\n\n{HEAD}{}{gap}{after}", before.trim_end(), line(run))
        }
    }
}

fn line(run: &Run) -> String {
    let Run { date, revision, count, took, passed } = run;
    let result = if *passed { "passed" } else { "**failed**" };
    format!("| {date} | {revision} | {count} | {took} | {result} |\n")
}

fn position_of_line(document: &str, line: &str) -> Option<usize> {
    let after_newline = |(at, _): (usize, &str)| at == 0 || document[..at].ends_with('\n');
    document.match_indices(line).find(|found| after_newline(*found)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(date: &str, passed: bool) -> Run {
        Run {
            date: date.to_owned(),
            revision: "1a2b3c4".to_owned(),
            count: "1000 kills".to_owned(),
            took: "9 min 3 s".to_owned(),
            passed,
        }
    }

    #[test]
    fn the_first_run_makes_the_document_and_the_section() {
        let document = record("", "Kills", "`cargo xtask soak kills`", &run("2026-01-02 03:04", true));
        let expected = "\
## Kills

`cargo xtask soak kills`

| date (UTC) | revision | count | took | result |
|---|---|---|---|---|
| 2026-01-02 03:04 | 1a2b3c4 | 1000 kills | 9 min 3 s | passed |
";
        assert_eq!(document, format!("{INTRO}\n{expected}"));
    }

    #[test]
    fn a_later_run_is_put_before_the_earlier_ones_of_its_own_section() {
        let one = record("", "Kills", "a", &run("day 1", true));
        let two = record(&one, "Storm", "b", &run("day 2", true));
        let three = record(&two, "Kills", "a", &run("day 3", false));
        let order: Vec<_> = ["## Kills", "day 3", "**failed**", "day 1", "## Storm", "day 2"]
            .iter()
            .map(|part| three.find(part).unwrap_or_else(|| panic!("no {part} in {three}")))
            .collect();
        assert!(order.is_sorted(), "{three}");
        assert_eq!(three.matches("## Kills").count(), 1);
    }

    #[test]
    fn text_written_by_hand_stays() {
        let by_hand = "# Evidence\n\n## Kills\n\nWhat we learnt.\n\n## Next\n\nMore.\n";
        let document = record(by_hand, "Kills", "a", &run("day 1", true));
        assert!(document.starts_with("# Evidence\n\n## Kills\n\nWhat we learnt.\n\n| date"), "{document}");
        assert!(document.ends_with("passed |\n\n## Next\n\nMore.\n"), "{document}");
    }

    #[test]
    fn a_title_inside_another_is_another_section() {
        let one = record("", "Kills", "a", &run("day 1", true));
        assert!(record(&one, "More kills", "b", &run("day 2", true)).contains("\n## More kills\n"));
        assert!(record("#", "Kills", "a", &run("day 1", true)).contains("\n## Kills\n"));
    }
}
