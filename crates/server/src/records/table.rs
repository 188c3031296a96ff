//! Records for people.

use std::fmt::Write;
use std::time::Duration;

use crate::admin::{Detail, RecordView};

pub(super) fn listing(records: &[RecordView]) -> String {
    if records.is_empty() {
        return "no records\n".into();
    }
    let mut out = format!(
        "{:<64}  {:<11}  {:>6}  {:>8}  {:>8}  {}\n",
        "ID", "STATE", "STATUS", "AGE", "EXPIRES", "ROUTE"
    );
    for record in records {
        let RecordView { id, state, age, expires_in, route, status, .. } = record;
        let status = status.map_or_else(|| "-".into(), |status| status.to_string());
        let (age, expires) = (span(*age), span(*expires_in));
        let (state, route) = (state.name(), printable(route));
        let _ = writeln!(out, "{id:<64}  {state:<11}  {status:>6}  {age:>8}  {expires:>8}  {route}");
    }
    out
}

pub(super) fn detail(detail: &Detail) -> String {
    let record = &detail.record;
    let mut rows = vec![
        ("id", record.id.clone()),
        ("state", record.state.name().to_owned()),
        ("route", printable(&record.route)),
        ("key hash", record.key_hash.clone()),
        ("scope hash", record.scope_hash.clone()),
        ("fingerprint", detail.fingerprint.clone()),
        ("fence", record.fence.to_string()),
        ("attempts", record.attempts.to_string()),
        ("age", span(record.age)),
        ("expires in", span(record.expires_in)),
    ];
    rows.extend(detail.lease_left.map(|left| ("lease left", span(left))));
    rows.extend(detail.unknown_for.map(|since| ("unknown for", span(since))));
    if let Some(answer) = &detail.answer {
        rows.push(("answer", answer.status.to_string()));
        rows.extend(answer.headers.iter().map(|(name, value)| ("", printable(&format!("{name}: {value}")))));
        match &answer.body {
            Some(body) => rows.push(("body", format!("{} bytes: {}", answer.body_bytes, printable(body)))),
            None => rows.push(("body", "not kept".into())),
        }
    }
    rows.extend(detail.hint.iter().map(|hint| ("hint", hint.clone())));
    rows.iter().fold(String::new(), |mut out, (name, value)| {
        let _ = writeln!(out, "{name:<12} {value}");
        out
    })
}

/// What a caller sent must not write to the terminal's own commands.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() && letter != '\n' { '\u{fffd}' } else { letter })
        .collect()
}

/// A span in its largest unit, rounded to the nearest.
fn span(seconds: f64) -> String {
    let span = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let of = |unit: u64, name: &str| format!("{}{name}", (span.as_secs_f64() / unit as f64).round());
    match span.as_secs() {
        0 => format!("{}ms", span.as_millis()),
        1..120 => of(1, "s"),
        120..7_200 => of(60, "m"),
        7_200..172_800 => of(3_600, "h"),
        _ => of(86_400, "d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_can_not_write_to_the_terminal() {
        assert!(!printable("\u{1b}[31mred").contains('\u{1b}'));
        assert_eq!(span(0.5), "500ms");
        assert_eq!(span(3_600.0), "60m");
        assert_eq!((span(2_591_999.9), span(86_399.2)), ("30d".into(), "24h".into()));
    }
}
