//! Guesses which name was meant.

/// The known name that is nearest to a wrong one, if one is near at all.
pub(crate) fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    let abbreviated = known.iter().find(|name| wrong.len() > 1 && name.starts_with(wrong));
    abbreviated.copied().or_else(|| {
        let (distance, name) =
            known.iter().map(|name| (distance(wrong, name), *name)).min_by_key(|found| found.0)?;
        (distance <= name.len().div_ceil(3)).then_some(name)
    })
}

/// How many letters must be put in, taken out or changed.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (above, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (column, b) in other.chars().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["engine", "operation", "key", "scope", "input"];

    #[test]
    fn a_slip_finds_its_name_and_nonsense_finds_none() {
        for (wrong, meant) in
            [("operaton", "operation"), ("op", "operation"), ("keys", "key"), ("inptu", "input")]
        {
            assert_eq!(nearest(wrong, KNOWN), Some(meant), "{wrong}");
        }
        for wrong in ["x", "timeout", "retries", ""] {
            assert_eq!(nearest(wrong, KNOWN), None, "{wrong}");
        }
    }
}
