//! Where the key of a request comes from, and how it is read.

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use onlyonce_core::json::Json;
use onlyonce_core::{InputError, Key, SequenceKey};
use sfv::{BareItem, Item, Parser};

use crate::pairs;

/// The header that carries keys unless a route says otherwise.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The usual header for numbers that callers count by themselves; see [`KeyFrom::Sequence`].
pub const SEQUENCE: HeaderName = HeaderName::from_static("onlyonce-sequence");

/// Where the key of a request comes from.
///
/// ```
/// use onlyonce_http::KeyFrom;
/// let stripe_like = KeyFrom::default();               // the Idempotency-Key header
/// let by_order = KeyFrom::Json("/order/id".into());   // a member of the JSON body
/// let by_form = KeyFrom::Form("_once".into());        // a hidden field
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyFrom {
    /// A header: a structured-field string, or bare visible ASCII without quotes, commas, semicolons and spaces.
    Header(HeaderName),
    /// A member of the JSON body, named by a JSON pointer; a string or a whole number. A body that is not JSON is refused,
    /// because nobody knows whether a key was meant.
    Json(String),
    /// A parameter of the query.
    Query(String),
    /// A header with a number that the caller counts by itself, such as `onlyonce-sequence: 42`; who counts is the scope.
    Sequence(HeaderName),
    /// A field of an urlencoded form; a body of another content type, `multipart/form-data` too, has no key.
    Form(String),
}

impl Default for KeyFrom {
    fn default() -> Self {
        Self::Header(IDEMPOTENCY_KEY)
    }
}

/// What there is before the body is read.
pub(crate) enum Early {
    Key(Key),
    Missing,
    /// The body has to be read first.
    InBody,
}

impl KeyFrom {
    pub(crate) fn validate(&self) -> Result<(), InputError> {
        match self {
            Self::Json(pointer) if !pointer.starts_with('/') => Err(InputError::new(format!(
                "the JSON pointer {pointer:?} does not start with '/'; write for instance \"/order_id\""
            ))),
            Self::Query(name) | Self::Form(name) if name.is_empty() => {
                Err(InputError::new("the name of the parameter that holds the key is empty"))
            }
            _ => Ok(()),
        }
    }

    /// Where a caller has to put its key.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Header(name) => format!("it goes into the header {name}"),
            Self::Json(pointer) => format!("it goes into the JSON body, at {pointer}"),
            Self::Query(name) => format!("it goes into the query, as {name}"),
            Self::Sequence(name) => format!("it is a number in the header {name}"),
            Self::Form(name) => format!("it goes into the urlencoded form, as {name}"),
        }
    }

    pub(crate) fn early(&self, headers: &HeaderMap, query: Option<&str>) -> Result<Early, InputError> {
        let found = match self {
            Self::Header(name) => from_header(headers, name)?,
            Self::Sequence(name) => from_sequence(headers, name)?.map(SequenceKey::key_of),
            Self::Query(name) => from_pairs(query.unwrap_or_default().as_bytes(), name)?,
            Self::Json(_) | Self::Form(_) => return Ok(Early::InBody),
        };
        Ok(found.map_or(Early::Missing, Early::Key))
    }

    pub(crate) fn in_body(&self, headers: &HeaderMap, body: &[u8]) -> Result<Option<Key>, InputError> {
        match self {
            Self::Json(pointer) => from_json(body, pointer),
            Self::Form(name) if is_form(headers) => from_pairs(body, name),
            _ => Ok(None),
        }
    }
}

/// Reads the one key header of a request; `None` if there is none.
pub(crate) fn from_header(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Key>, InputError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(InputError::new(format!("there are several {name} headers; send one")));
    }
    key_of_header(value).map(Some)
}

/// Reads the one number of a request; `None` if there is none. `007` and `7` are the same.
pub(crate) fn from_sequence(headers: &HeaderMap, name: &HeaderName) -> Result<Option<u64>, InputError> {
    let Some(text) = from_header(headers, name)? else { return Ok(None) };
    let text = text.as_str();
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number.map(Some).ok_or_else(|| InputError::new(format!("{name} is a whole number below 2^64, in digits")))
}

/// Reads a key as it stands in a header: `k`, `"k"` and `"k";p=1` are the same.
///
/// ```
/// use http::HeaderValue;
/// use onlyonce_http::key_of_header;
/// assert_eq!(key_of_header(&HeaderValue::from_static("\"k\""))?.as_str(), "k");
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
///
/// # Errors
/// If it is neither a structured-field string nor bare visible ASCII.
pub fn key_of_header(value: &HeaderValue) -> Result<Key, InputError> {
    let bytes = value.as_bytes();
    if !bytes.is_ascii() {
        return Err(InputError::new(
            "the key holds a character beyond ASCII, in quotes or not; use a UUID, or encode it, for instance as %C3%A9",
        ));
    }
    if bytes.starts_with(b"\"") {
        let item: Item = Parser::new(bytes)
            .parse()
            .map_err(|cause| InputError::new(format!("the key is not a structured-field string: {cause}")))?;
        let BareItem::String(text) = item.bare_item else {
            return Err(InputError::new("the key is not a structured-field string"));
        };
        return Key::new(text.as_str());
    }
    let bare = |byte: &u8| byte.is_ascii_graphic() && !b"\",;".contains(byte);
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(bare) => Key::new(text),
        _ => Err(InputError::new(
            "the key holds a space, a quote, a comma, a semicolon or a control character; put it in double quotes, or use a UUID",
        )),
    }
}

fn from_json(body: &[u8], pointer: &str) -> Result<Option<Key>, InputError> {
    let unclear =
        |cause| InputError::new(format!("the key is in the JSON body, which can't be read: {cause}"));
    let document = Json::parse(body).map_err(unclear)?;
    match document.at(pointer).map_err(unclear)? {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Text(text)) if text.contains('\0') => Err(InputError::new(format!(
            "{pointer} holds the key, and a NUL in it, at which some services stop to read"
        ))),
        Some(Json::Text(text)) => Key::new(&**text).map(Some),
        Some(Json::Number(number)) if is_whole(number) => Key::new(*number).map(Some),
        Some(_) => {
            Err(InputError::new(format!("{pointer} holds the key and must be a string or a whole number")))
        }
    }
}

/// Whether all read this number alike: `1.0` and `-0` they do not.
fn is_whole(number: &str) -> bool {
    number != "-0" && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

fn from_pairs(encoded: &[u8], name: &str) -> Result<Option<Key>, InputError> {
    pairs::find(encoded, name)?.map(Key::new).transpose()
}

pub(crate) fn is_form(headers: &HeaderMap) -> bool {
    // Where there are several, some service goes by this one.
    headers.get_all(CONTENT_TYPE).iter().any(|value| {
        let essence = value.as_bytes().split(|byte| matches!(byte, b';' | b',')).next().unwrap_or_default();
        essence.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(value: &[u8]) -> Result<Key, InputError> {
        key_of_header(&HeaderValue::from_bytes(value).unwrap())
    }

    #[test]
    fn quoted_bare_and_parametrised_are_the_same_key() {
        for value in [&b"k-1"[..], b"\"k-1\"", b"\"k-1\";p=1", b"\"k-1\"; q"] {
            assert_eq!(header(value).unwrap().as_str(), "k-1");
        }
        assert_eq!(header(br#""a, \"b\" \\ c""#).unwrap().as_str(), r#"a, "b" \ c"#);
    }

    #[test]
    fn malformed_keys_are_refused() {
        for value in [
            &b""[..],
            b"\"\"",
            b"\"open",
            b"a b",
            b"a,b",
            b"k;p=1",
            b"\"a\" \"b\"",
            b"\"a\", \"b\"",
            b"caf\xc3\xa9",
        ] {
            assert!(header(value).is_err(), "{}", String::from_utf8_lossy(value));
        }
    }

    #[test]
    fn a_key_may_have_255_bytes_and_not_one_more() {
        assert!(header("k".repeat(255).as_bytes()).is_ok());
        assert!(header("k".repeat(256).as_bytes()).is_err());
        assert!(header(format!("\"{}\"", "k".repeat(255)).as_bytes()).is_ok());
        assert!(header(format!("\"{}\"", "k".repeat(256)).as_bytes()).is_err());
    }

    #[test]
    fn json_keys_are_strings_or_whole_numbers() {
        let at = |body: &str| from_json(body.as_bytes(), "/order/id");
        assert_eq!(at(r#"{"order":{"id":"a"}}"#).unwrap().unwrap().as_str(), "a");
        assert_eq!(at(r#"{"order":{"id":42}}"#).unwrap().unwrap().as_str(), "42");
        assert!(at(r#"{"order":{}}"#).unwrap().is_none());
        assert!(at(r#"{"order":{"id":4.2}}"#).is_err());
        assert!(at(r#"{"order":{"id":[]}}"#).is_err());
        assert!(at("{").is_err());
        assert_eq!(
            at(r#"{"order":{"id":100000000000000000001}}"#).unwrap().unwrap().as_str(),
            "100000000000000000001"
        );
        for unclear in ["-0", "1.0", "1e3", "1e20", "\"a\\u0000\"", "[1]", "true"] {
            assert!(at(&format!(r#"{{"order":{{"id":{unclear}}}}}"#)).is_err(), "{unclear}");
        }
        for unclear in [
            r#"{"order":{"id":"a","id":"b"}}"#,
            r#"{"order":{"id":"a"},"order":{"id":"b"}}"#,
            r#"{"order":{"id":"a","ID":"b"}}"#,
            r#"{"order":{"Id":"a"}}"#,
            r#"{"order":{"id":"a"},"note":{"x":1,"x":2}}"#,
        ] {
            assert!(at(unclear).is_err(), "{unclear}");
        }
    }

    #[test]
    fn a_parameter_given_twice_is_refused() {
        assert_eq!(from_pairs(b"a=1&k=x%20y", "k").unwrap().unwrap().as_str(), "x y");
        assert!(from_pairs(b"k=1&k=1", "k").is_err());
        assert!(from_pairs(b"k=", "k").is_err());
        assert!(from_pairs(b"a=1", "k").unwrap().is_none());
    }
}
