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
