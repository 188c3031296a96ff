//! JSON from elsewhere, read so that every service behind reads the same, or not at all.
//!
//! Parsers differ: in which of two members of one name they take, in whether `Amount` is `amount`, and in how many digits of a
//! number they keep. A key or a fingerprint that was read in one way while the service reads in another protects nothing. So
//! members that are there twice, or could be taken for another, are refused, and numbers stay as they were written.

mod number;
mod parse;

use std::borrow::Cow;

use crate::canonical::Writer;
use crate::error::InputError;

/// A JSON document.
///
/// ```
/// use onlyonce_core::json::Json;
/// let order = Json::parse(br#"{"order": {"id": 100000000000000000001}}"#)?;
/// assert_eq!(order.at("/order/id")?, Some(&Json::Number("100000000000000000001")));
/// assert_eq!(order.at("/order/note")?, None);
/// assert!(Json::parse(br#"{"id": 1, "id": 2}"#).is_err());
/// assert!(Json::parse(br#"{"ID": 1}"#)?.at("/id").is_err());
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as it was written.
    Number(&'a str),
    /// A string.
    Text(Cow<'a, str>),
    /// An array.
    List(Vec<Json<'a>>),
    /// An object: its members in the order of their names, each of which is there once.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

impl<'a> Json<'a> {
    /// Reads a document.
    ///
    /// # Errors
    /// If it is not JSON, goes deeper than 128 levels, or could be read in two ways.
    pub fn parse(document: &'a [u8]) -> Result<Self, InputError> {
        parse::document(document)
    }

    /// What a JSON pointer (RFC 6901) such as `/order/id` points to.
    ///
    /// # Errors
    /// If a member on the way is written differently (`ID` for `id`): some services would read it, and some would not.
    pub fn at(&self, pointer: &str) -> Result<Option<&Self>, InputError> {
        let mut found = self;
        for step in pointer.split('/').skip(1) {
            let step = step.replace("~1", "/").replace("~0", "~");
            let next = match found {
                Self::Object(members) => member(members, &step)?,
                Self::List(items) => index(&step).and_then(|place| items.get(place)),
                _ => None,
            };
            match next {
                Some(next) => found = next,
                None => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        match self {
            Self::Null => writer.mark(b'n'),
            Self::Bool(yes) => writer.mark(if *yes { b't' } else { b'f' }),
            Self::Number(text) => writer.text(b'#', &number::exact(text)),
            Self::Text(text) => writer.text(b'"', text),
            Self::List(items) => {
                writer.count(b'[', items.len());
                items.iter().for_each(|item| item.write(writer));
            }
            Self::Object(members) => {
                writer.count(b'{', members.len());
                for (name, member) in members {
                    writer.text(b'"', name);
                    member.write(writer);
                }
            }
        }
    }
}

fn member<'j, 'a>(
    members: &'j [(Cow<'a, str>, Json<'a>)],
    name: &str,
) -> Result<Option<&'j Json<'a>>, InputError> {
    let like =
        |other: &str| other != name && other.chars().flat_map(folded).eq(name.chars().flat_map(folded));
    if let Some((other, _)) = members.iter().find(|(other, _)| like(other)) {
        return Err(InputError::new(format!(
            "the member {} is written {} here, which some services read and some do not; write it exactly so, and once",
            shown(name),
            shown(other)
        )));
    }
    let place = members.binary_search_by(|(other, _)| (**other).cmp(name));
    Ok(place.ok().and_then(|place| members.get(place)).map(|(_, member)| member))
}

/// A letter without its case, also where it has several forms (`ſ` for `s`, the Kelvin sign for `k`).
fn folded(letter: char) -> impl Iterator<Item = char> {
    letter.to_uppercase().flat_map(char::to_lowercase)
}

fn index(step: &str) -> Option<usize> {
    let plain = step.bytes().all(|byte| byte.is_ascii_digit()) && (step == "0" || !step.starts_with('0'));
    if plain { step.parse().ok() } else { None }
}

/// A name in a message: the caller's own, so not at any length.
fn shown(name: &str) -> String {
    format!("{:?}", name.chars().take(64).collect::<String>())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_two_parsers_read_differently_is_refused() {
        for text in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"x":[{"b":{"a":1,"c":2,"a":3}}]}"#,
            r#"{"a\u0000b":1}"#,
            r#"["\ud800"]"#,
            "[1e400]",
            "[-1e400]",
            "[1e99999999999999999999]",
            "[1e-99999999999999999999]",
            "[01]",
            "[1.]",
            "[.1]",
            "[+1]",
            "[-]",
            "[1e]",
            "[NaN]",
            "[Infinity]",
            "[1,]",
            r#"{"a":1,}"#,
            "{a:1}",
            "['a']",
            "[1] 2",
            "\u{feff}[]",
            "// x\n[]",
            "[\"a\nb\"]",
            "\"open",
            "nul",
            "",
            " ",
        ] {
            assert!(Json::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Json::parse(b"[\"\xff\"]").is_err());
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(Json::parse(deep(100).as_bytes()).is_ok());
        assert!(Json::parse(deep(100_000).as_bytes()).is_err());
    }

    #[test]
    fn a_member_that_some_services_would_take_for_another_is_refused() {
        for text in
            [r#"{"Amount":1}"#, r#"{"amount":1,"AMOUNT":2}"#, "{\"amount\":1,\"\u{e4}\":2,\"aMount\":1}"]
        {
            assert!(Json::parse(text.as_bytes()).unwrap().at("/amount").is_err(), "{text}");
        }
        assert!(Json::parse("{\"\u{212a}ey\":1}".as_bytes()).unwrap().at("/key").is_err(), "the Kelvin sign");
        assert!(Json::parse("{\"\u{17f}um\":1}".as_bytes()).unwrap().at("/sum").is_err(), "the long s");
        let elsewhere = Json::parse(br#"{"amount":1,"note":{"ID":1,"id":2}}"#).unwrap();
        assert_eq!(elsewhere.at("/amount").unwrap(), Some(&Json::Number("1")));
    }

    #[test]
    fn pointers_lead_where_they_say() {
        let text = br#"{"a":[10,{"b/c":1,"~":2,"":3}],"0":4}"#;
        let document = Json::parse(text).unwrap();
        let at = |pointer: &str| document.at(pointer).unwrap().cloned();
        assert_eq!(at("/a/0"), Some(Json::Number("10")));
        assert_eq!(at("/a/1/b~1c"), Some(Json::Number("1")));
        assert_eq!(at("/a/1/~0"), Some(Json::Number("2")));
        assert_eq!(at("/a/1/"), Some(Json::Number("3")));
        assert_eq!(at("/0"), Some(Json::Number("4")));
        for nowhere in ["/a/2", "/a/00", "/a/+1", "/a/-", "/b", "/a/0/b", "/0/x"] {
            assert_eq!(at(nowhere), None, "{nowhere}");
        }
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<u64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            ".{0,8}".prop_filter("no NUL in names", |text| !text.contains('\0')).prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::btree_map("[a-c\"\\\\é]{0,3}", inner, 0..6)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_document_is_read_and_fingerprinted_as_its_value_is(value in any_json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.unwrap();
            let document = Json::parse(text.as_bytes()).unwrap();
            let mut writer = Writer::new();
            document.write(&mut writer);
            let same = crate::canonical::encode(&value, crate::canonical::Items::InOrder).unwrap();
            prop_assert_eq!(writer.into_bytes(), same, "{}", text);
        }

        #[test]
        fn what_is_no_json_to_serde_is_none_here_and_nothing_panics(text in "[\\[\\]{}\",:0-9eE.+\\-\\\\untrfalse \u{e9}]{0,40}") {
            let ours = Json::parse(text.as_bytes());
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            prop_assert!(ours.is_err() || theirs.is_ok(), "{}", text);
        }
    }
}
