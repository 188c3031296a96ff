//! Guesses which name was meant.

/// `did you mean "lease"?` if a known name is near, else the known ones.
pub(crate) fn hint(wrong: &str, known: &[&str]) -> String {
    match nearest(wrong, known) {
        Some((distance, name)) if distance <= name.len().div_ceil(3) => format!("did you mean {name:?}?"),
        _ => format!("there are {}", known.join(", ")),
    }
}

/// `did you mean "ONLYONCE_LEASE"?`: for names that are too many to list.
pub(crate) fn near(wrong: &str, known: &[&str]) -> String {
    nearest(wrong, known).map(|(_, name)| format!("did you mean {name}?")).unwrap_or_default()
}

fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<(usize, &'a str)> {
    known.iter().map(|name| (distance(wrong, name), *name)).min_by_key(|found| found.0)
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

    #[test]
    fn a_slip_finds_its_name_and_nonsense_finds_all() {
        assert_eq!(hint("lese", &["lease", "wait"]), "did you mean \"lease\"?");
        assert_eq!(hint("colour", &["lease", "wait"]), "there are lease, wait");
    }
}
