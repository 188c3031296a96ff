//! The claims of a token, as exactly as they were written.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::scope::Word;

/// The claims of a token. One that is there twice makes the token unreadable: two services could read it differently.
#[derive(Debug)]
pub(crate) struct Claims(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Claims {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Claims;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Claims, A::Error> {
                let mut claims: Vec<(String, Box<RawValue>)> = Vec::new();
                while let Some((name, value)) = members.next_entry::<String, Box<RawValue>>()? {
                    if claims.iter().any(|(known, _)| *known == name) {
                        return Err(A::Error::custom("a claim is there twice"));
                    }
                    claims.push((name, value));
                }
                Ok(Claims(claims))
            }
        }
        from.deserialize_map(Members)
    }
}

/// Stands before a number, so that `42` and `"42"` are two callers. A text that begins with it gets one more.
const NUMBER: char = '=';

/// Who a claim names: a text as it is, a whole number by its digits, however many there are.
pub(crate) fn word(Claims(claims): &Claims, name: &str) -> Word {
    let Some((_, value)) = claims.iter().find(|(known, _)| known == name) else {
        return Word::Absent(format!("the token has no claim {name}"));
    };
    let value = value.get();
    if let Ok(text) = serde_json::from_str::<String>(value) {
        return match text.as_str() {
            "" => Word::Absent(format!("the claim {name} is empty")),
            text if text.starts_with(NUMBER) => Word::Says(format!("{NUMBER}{text}")),
            _ => Word::Says(text),
        };
    }
    let digits = value.strip_prefix('-').unwrap_or(value);
    if digits.bytes().all(|byte| byte.is_ascii_digit()) && value != "-0" {
        return Word::Says(format!("{NUMBER}{value}"));
    }
    Word::Absent(format!("the claim {name} is neither text nor a whole number in digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(claims: &str) -> Word {
        word(&serde_json::from_str(claims).unwrap(), "sub")
    }

    #[test]
    fn no_two_claims_that_differ_name_the_same_caller() {
        let callers = [
            r#"{"sub":42}"#,
            r#"{"sub":"42"}"#,
            r#"{"sub":"=42"}"#,
            r#"{"sub":"==42"}"#,
            r#"{"sub":-42}"#,
            r#"{"sub":9007199254740992}"#,
            r#"{"sub":9007199254740993}"#,
            r#"{"sub":18446744073709551617}"#,
            r#"{"sub":18446744073709551999}"#,
            r#"{"sub":1}"#,
            r#"{"sub":"true"}"#,
        ];
        let said: Vec<Word> = callers.iter().map(|claims| says(claims)).collect();
        for (n, one) in said.iter().enumerate() {
            assert!(matches!(one, Word::Says(_)), "{one:?}");
            assert!(said[n + 1..].iter().all(|other| other != one), "{one:?}");
        }
        assert_eq!(says(r#"{"sub":"a\u006en"}"#), Word::Says("ann".into()));
        assert_eq!(says(r#"{"sub": 42 }"#), Word::Says("=42".into()));
        for nobody in ["1.5", "1e3", "42.0", "-0", "true", "null", "[]", "{}", "\"\""] {
            assert!(matches!(says(&format!("{{\"sub\":{nobody}}}")), Word::Absent(_)), "{nobody}");
        }
        assert!(serde_json::from_str::<Claims>(r#"{"tenant":1,"tenant":2}"#).is_err());
    }
}
