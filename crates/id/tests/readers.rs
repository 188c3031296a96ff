//! What reads ids, given anything at all: no panic, and what is read is what would be written.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use onlyonce_id::{Layout, PrefixedId, SnowflakeId};
use proptest::prelude::*;

/// Text, bytes as text, and text that is almost an id.
fn almost() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,60}",
        proptest::collection::vec(any::<u8>(), 0..60)
            .prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        "[0-9]{0,25}",
        "[0-9a-zA-Z]{12,14}",
        "[a-z_]{0,66}_[0-9a-zA-Z]{25,27}",
        ("[a-z]{1,8}_[0-9a-hjkmnp-tv-z]{26}", 0usize..40, any::<char>()).prop_map(|(mut id, at, other)| {
            let at = at.min(id.len() - 1);
            id.replace_range(at..=at, &other.to_string());
            id
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_is_read_as_an_id_is_written_the_same(text in almost()) {
        if let Ok(id) = text.parse::<PrefixedId>() {
            // Capitals and look-alikes are read, and only those.
            let plain = text.to_ascii_lowercase();
            let (prefix, digits) = plain.rsplit_once('_').unwrap();
            let digits = digits.replace('o', "0").replace(['i', 'l'], "1");
            prop_assert_eq!(id.to_string(), format!("{prefix}_{digits}"));
            prop_assert_eq!(id.to_string().parse::<PrefixedId>().unwrap(), id);
        }
        if let Ok(id) = text.parse::<SnowflakeId>() {
            let digits = text.trim_start_matches('0');
            prop_assert_eq!(id.to_string(), if digits.is_empty() { "0" } else { digits });
        }
        if let Ok(id) = SnowflakeId::from_sortable(&text) {
            let digits = text.to_ascii_lowercase().replace('o', "0").replace(['i', 'l'], "1");
            prop_assert_eq!(id.sortable(), digits);
        }
        let _ = serde_json::from_str::<SnowflakeId>(&text);
        let _ = serde_json::from_str::<PrefixedId>(&text);
        let quoted = serde_json::to_string(&text).unwrap();
        prop_assert_eq!(serde_json::from_str::<SnowflakeId>(&quoted).ok(), text.parse().ok());
        prop_assert_eq!(serde_json::from_str::<PrefixedId>(&quoted).ok(), text.parse().ok());
    }

    #[test]
    fn any_number_is_decoded_by_any_layout(number in any::<u64>()) {
        let id = SnowflakeId::new(number);
        let all = [
            Layout::STANDARD.decode(id),
            Layout::TWITTER.decode(id),
            Layout::JAVASCRIPT.decode(id),
            Layout::<41, 8, 10, 4>::new().decode(id),
            Layout::<62, 0, 1>::new().decode(id),
            Layout::<1, 20, 42>::new().decode(id),
        ];
        prop_assert!(all.iter().all(|parts| parts.worker < 1 << 20));
    }
}
