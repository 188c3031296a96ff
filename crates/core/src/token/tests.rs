use proptest::prelude::*;

use super::signed::{self, Claims};
use super::*;

fn keys() -> TokenKeys {
    TokenKeys::new(7, [9; 32]).unwrap()
}

fn claims(mode: Mode, expires_millis: u64, nonce: [u8; 16], bound_to: [u8; 16]) -> Claims {
    Claims { mode, expires_millis, nonce, bound_to }
}

fn any_claims() -> impl Strategy<Value = Claims> {
    (any::<bool>(), any::<u64>(), any::<[u8; 16]>(), any::<[u8; 16]>()).prop_map(
        |(reject, expires, nonce, bound)| {
            claims(if reject { Mode::Reject } else { Mode::Replay }, expires, nonce, bound)
        },
    )
}

proptest! {
    #[test]
    fn what_was_signed_reads_back(claims in any_claims()) {
        let token = signed::write(&claims, &keys());
        prop_assert_eq!(signed::read(&token, &keys()), Some(claims));
        prop_assert!(token.len() <= 255);
    }

    #[test]
    fn text_that_nobody_signed_is_refused_and_never_panics(text in ".{0,400}", hex in "[0-9a-fA-F]{150,162}") {
        prop_assert_eq!(signed::read(&text, &keys()), None);
        prop_assert_eq!(signed::read(&hex, &keys()), None);
    }

    #[test]
    fn a_changed_character_a_cut_and_an_addition_are_refused(claims in any_claims(), at in 0usize..156, digit in 0u32..16) {
        let token = signed::write(&claims, &keys());
        let mut changed: Vec<char> = token.chars().collect();
        changed[at] = char::from_digit(digit, 16).unwrap();
        let changed: String = changed.into_iter().collect();
        if changed != token {
            prop_assert_eq!(signed::read(&changed, &keys()), None);
        }
        prop_assert_eq!(signed::read(&token[..at], &keys()), None);
        prop_assert_eq!(signed::read(&format!("{token}{digit:x}"), &keys()), None);
    }

    #[test]
    fn subjects_and_actions_cannot_slide_into_each_other(a in "[ab]{1,4}", b in "[ab]{1,4}", c in "[ab]{1,4}", d in "[ab]{1,4}") {
        let bound = |subject: &str, action: &str| binding(&Scope::new(subject).unwrap(), &Operation::new(action).unwrap());
        prop_assert_eq!(bound(&a, &b) == bound(&c, &d), (a, b) == (c, d));
    }
}

#[test]
fn neither_secrets_nor_tokens_are_shown() {
    let keys = TokenKeys::new(7, "a secret of more than thirty-two bytes").unwrap();
    assert_eq!(format!("{keys:?}"), "[7]");
    assert_eq!(format!("{:?}", Token("abc".into())), "Token(<3 characters>)");
}

/// A fuzzer's day, as far as one fits into a test: anything at all, and what is almost a token.
mod fuzz {
    use super::*;
    use crate::{Idempotency, MemoryStore};

    const CASES: u32 = 2_000;

    fn two_keys() -> TokenKeys {
        TokenKeys::new(7, [9; 32]).unwrap().also(8, [1; 32]).unwrap()
    }

    /// The bytes of a real token, which say what they are and who signed them.
    fn any_token() -> impl Strategy<Value = Vec<u8>> {
        any_claims().prop_map(|claims| {
            let token = signed::write(&claims, &two_keys());
            crate::hex::read::<78>(&token).unwrap().to_vec()
        })
    }

    fn read(bytes: &[u8]) -> Option<Claims> {
        signed::read(&crate::hex::text(bytes), &two_keys())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(CASES))]

        #[test]
        fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert_eq!(signed::read(&String::from_utf8_lossy(&bytes), &two_keys()), None);
            prop_assert_eq!(read(&bytes), None);
        }

        #[test]
        fn bytes_in_the_form_of_a_token_are_refused(mut bytes in any::<[[u8; 26]; 3]>(), mode in 0u8..2, id in 7u32..9) {
            let form = bytes.as_flattened_mut();
            form[0] = 1;
            form[1] = mode;
            form[2..6].copy_from_slice(&id.to_be_bytes());
            prop_assert_eq!(read(form), None);
        }

        #[test]
        fn a_flipped_bit_is_refused(mut token in any_token(), bit in 0usize..78 * 8) {
            token[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(read(&token), None);
        }

        #[test]
        fn cut_doubled_and_swapped_parts_are_refused(token in any_token(), a in 0usize..78, b in 0usize..78) {
            let (a, b) = (a.min(b), a.max(b));
            prop_assert_eq!(read(&token[..b]), None, "cut short");
            prop_assert_eq!(read(&token[a.max(1)..]), None, "cut off in front");
            prop_assert_eq!(read(&[&token[..b], &token[a..]].concat()).is_some(), a == b, "a part twice, or left out");
            let mut swapped = token.clone();
            swapped.swap(a, b);
            prop_assert_eq!(read(&swapped).is_some(), swapped == token);
            let text = crate::hex::text(&token);
            prop_assert_eq!(signed::read(&text[..a * 2 + 1], &two_keys()), None, "half a byte");
            for noise in [" ", "\n", "\0", "-", "é", "ｆ"] {
                let noisy = format!("{}{noise}{}", &text[..a * 2], &text[a * 2..]);
                prop_assert_eq!(signed::read(&noisy, &two_keys()), None);
                let end = (a * 2 + noise.len()).min(text.len());
                let replaced = format!("{}{noise}{}", &text[..a * 2], &text[end..]);
                prop_assert_eq!(signed::read(&replaced, &two_keys()), None);
            }
            prop_assert_eq!(signed::read(&text.to_uppercase(), &two_keys()), read(&token));
        }

        #[test]
        fn two_tokens_cannot_be_spliced_into_a_third(one in any_token(), other in any_token(), at in 0usize..79) {
            let spliced = [&one[..at], &other[at..]].concat();
            prop_assert_eq!(read(&spliced).is_some(), spliced == one || spliced == other);
        }

        #[test]
        fn the_other_key_did_not_sign_it(mut token in any_token()) {
            token[2..6].copy_from_slice(&8u32.to_be_bytes());
            prop_assert_eq!(read(&token), None);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn nothing_that_was_not_issued_is_good_for_any_kind(text in ".{0,200}", hex in "[0-9a-fA-F]{60,68}|[0-9a-fA-F]{156}") {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let once = Idempotency::new(MemoryStore::new());
                let (subject, action) = (Scope::new("ann").unwrap(), Operation::new("order").unwrap());
                for text in [&text, &hex] {
                    let signed = Tokens::signed(once.clone(), two_keys()).check(text, &subject, &action).await;
                    assert_eq!(signed.unwrap(), Checked::Refused);
                    let stored = Tokens::stored(once.clone()).check(text, &subject, &action).await;
                    assert_eq!(stored.unwrap(), Checked::Refused);
                    let deleted = Tokens::delete_first(once.clone()).check(text, &subject, &action).await;
                    assert_eq!(deleted.unwrap(), Checked::Gone);
                }
            });
        }
    }
}
