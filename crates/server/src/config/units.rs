//! Durations and sizes, as people write them: `30s`, `24h`, `1MiB`.

use std::time::Duration;

const SPANS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];

const SIZES: [(&str, u64); 7] = [
    ("B", 1),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
];

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let millis = scaled(text, &SPANS);
    millis.map(Duration::from_millis).ok_or_else(|| {
        format!(
            "{text:?} is not a duration; write a number and ms, s, m, h or d, for instance \"30s\" or \"24h\""
        )
    })
}

/// A duration within bounds.
pub(crate) fn span(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let span = duration(text)?;
    if (least..=most).contains(&span) {
        return Ok(span);
    }
    Err(format!("{text:?} is not between {} and {}", show_duration(least), show_duration(most)))
}

pub(crate) fn size(text: &str) -> Result<usize, String> {
    let plain = text.trim().parse().ok();
    let bytes = plain.or_else(|| scaled(text, &SIZES)).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| {
        format!("{text:?} is not a size; write a number and B, KiB, MiB or GiB, for instance \"1MiB\"")
    })
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// A duration in the largest unit that keeps it whole.
pub(crate) fn show_duration(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let unit = SPANS
        .iter()
        .rev()
        .find(|(name, factor)| *name != "w" && millis > 0 && millis.is_multiple_of(*factor));
    unit.map_or_else(|| "0s".to_owned(), |(name, factor)| format!("{}{name}", millis / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_understood() {
        for (text, millis) in
            [("500ms", 500), ("30s", 30_000), ("10m", 600_000), ("24h", 86_400_000), ("0s", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
            assert_eq!(show_duration(Duration::from_millis(millis)), if text == "24h" { "1d" } else { text });
        }
        for (text, bytes) in
            [("1MiB", 1 << 20), ("64 KiB", 64 << 10), ("1000", 1000), ("2kB", 2000), ("0", 0)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_has_no_unit_or_no_number_is_refused_with_an_example() {
        for text in ["30", "s", "", "-1s", "1.5h", "30 parsecs", "99999999999999999999d"] {
            assert!(duration(text).is_err_and(|why| why.contains("\"30s\"")), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5MiB", "1 furlong"] {
            assert!(size(text).is_err_and(|why| why.contains("\"1MiB\"")), "{text}");
        }
    }
}
