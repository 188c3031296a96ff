//! Numbers of JSON, compared exactly.

use std::borrow::Cow;

/// The number as it is compared: two have the same text if, and only if, they are the same number, written as a whole one or
/// with a fraction or an exponent. (`1` and `1.0` are two: many services tell them apart.)
///
/// What fits 64 bits, or is what a double prints, keeps the text that it always had in fingerprints, because they are stored.
pub(super) fn exact(text: &str) -> Cow<'_, str> {
    let is_whole = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if is_whole && text != "-0" {
        return text.into();
    }
    let double = text.parse().ok().and_then(serde_json::Number::from_f64).map(|double| double.to_string());
    match double {
        Some(double) if decimal(&double) == decimal(text) => double.into(),
        _ => {
            let (negative, digits, exponent) = decimal(text);
            format!("{}{digits}e{exponent}", if negative { "-" } else { "" }).into()
        }
    }
}

/// Sign, digits without zeros at either end, and the power of ten of the last digit.
fn decimal(text: &str) -> (bool, String, i64) {
    let (text, negative) = text.strip_prefix('-').map_or((text, false), |rest| (rest, true));
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return (negative, String::new(), 0);
    }
    let zeros = digits.len() - significant.len();
    // The parser has seen to it that it fits.
    let exponent: i64 = exponent.parse().unwrap_or_default();
    let last = exponent - fraction.len() as i64 + zeros as i64;
    (negative, significant.trim_start_matches('0').to_owned(), last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_numbers_never_have_the_same_text() {
        for (one, other) in [
            ("100000000000000000000", "100000000000000000001"),
            ("1e20", "1.00000000000000000001e20"),
            ("0.1", "0.10000000000000000001"),
            ("9007199254740992", "9007199254740993"),
            ("9007199254740992.0", "9007199254740993.0"),
            ("18446744073709551616", "18446744073709551617"),
            ("-9223372036854775809", "-9223372036854775810"),
            ("1e-400", "1e-401"),
            ("0", "-0"),
            ("1", "1.0"),
            ("1", "-1"),
            ("12345678901234567890.5", "12345678901234567890.25"),
        ] {
            assert_ne!(exact(one), exact(other), "{one} {other}");
        }
    }

    #[test]
    fn one_number_has_one_text_however_it_is_written() {
        for (one, other) in [
            ("1.0", "1.00"),
            ("1e2", "100.0"),
            ("1E+2", "1e2"),
            ("0.1", "1e-1"),
            ("0.10000000000000000001", "1.0000000000000000001e-1"),
            ("1e-400", "0.01e-398"),
            ("0.0", "0e5"),
        ] {
            assert_eq!(exact(one), exact(other), "{one} {other}");
        }
    }

    /// A new way of printing doubles in a dependency would be seen here: no stored fingerprint would be recognised any more.
    #[test]
    fn what_a_double_holds_keeps_the_text_that_fingerprints_are_stored_with() {
        for (text, stored) in
            [("42", "42"), ("-7", "-7"), ("1.10", "1.1"), ("1e2", "100.0"), ("-0", "-0.0"), ("1e21", "1e+21")]
        {
            assert_eq!(exact(text), stored);
        }
    }
}
