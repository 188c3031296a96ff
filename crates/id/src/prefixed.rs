//! Ids that say what they are ids of: `order_01jq…`.

use std::fmt;
use std::str::FromStr;

use onlyonce_core::InputError;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use crate::crockford;

const LONGEST_PREFIX: usize = 63;
const DIGITS: usize = 26;

/// What stands before the underscore of an id: lower-case letters, digits and underscores, a letter first, at most 63.
///
/// ```
/// use onlyonce_id::Prefix;
/// let orders = Prefix::new("order")?;
/// let id = orders.generate();
/// assert!(id.to_string().starts_with("order_"));
/// assert!(id < orders.generate(), "they sort by the time they were made");
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix(Box<str>);

impl Prefix {
    /// Takes the text as a prefix.
    ///
    /// # Errors
    /// If it is empty, too long, or has other characters.
    pub fn new(text: impl Into<Box<str>>) -> Result<Self, InputError> {
        let text = text.into();
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let starts = text.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
        if starts && text.len() <= LONGEST_PREFIX && text.bytes().all(fits) && !text.ends_with('_') {
            return Ok(Self(text));
        }
        Err(InputError::new(format!(
            "the prefix {text:?} must be 1 to {LONGEST_PREFIX} lower-case letters, digits and underscores, with a letter first and no underscore last"
        )))
    }

    /// A new id with this prefix: a UUID v7, so that ids sort by time. Needs no network.
    #[must_use]
    pub fn generate(&self) -> PrefixedId {
        self.with(Uuid::now_v7())
    }

    /// The id with this prefix and UUID.
    #[must_use]
    pub fn with(&self, uuid: Uuid) -> PrefixedId {
        PrefixedId { prefix: self.clone(), uuid }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A UUID behind a [`Prefix`], written as 26 digits that sort as the UUID does.
///
/// ```
/// use onlyonce_id::PrefixedId;
/// let id: PrefixedId = "order_01h455vb4pex5vsknk084sn02q".parse()?;
/// assert_eq!(id.prefix().as_str(), "order");
/// assert_eq!(id.uuid().to_string(), "01890a5d-ac96-774b-bcce-b302099a8057");
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PrefixedId {
    prefix: Prefix,
    uuid: Uuid,
}

impl PrefixedId {
    /// What it is an id of.
    #[must_use]
    pub fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// The UUID.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }
}

impl fmt::Display for PrefixedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.prefix.0, crockford::write(self.uuid.as_u128(), DIGITS))
    }
}

impl FromStr for PrefixedId {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Self, InputError> {
        let wrong =
            || InputError::new("a prefixed id is a prefix, an underscore and 26 digits, as `app_01h4…`");
        let (prefix, digits) = text.rsplit_once('_').ok_or_else(wrong)?;
        let uuid = crockford::read(digits, DIGITS, 128).ok_or_else(wrong)?;
        Ok(Self { prefix: Prefix::new(prefix)?, uuid: Uuid::from_u128(uuid) })
    }
}

impl Serialize for PrefixedId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PrefixedId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_that_would_be_misread_are_refused() {
        for wrong in ["", "App", "1st", "_a", "a_", "a-b", "é", &"a".repeat(64)] {
            assert!(Prefix::new(wrong).is_err(), "{wrong}");
        }
        assert!(Prefix::new("line_item2").is_ok());
    }

    #[test]
    fn text_and_json_read_back() {
        let id = Prefix::new("line_item").unwrap().generate();
        assert_eq!(id.to_string().parse::<PrefixedId>().unwrap(), id);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<PrefixedId>(&json).unwrap(), id);
        for wrong in [
            "order",
            "order_",
            "order_01h4",
            "order_81h455vb4pex5vsknk084sn02q",
            "01h455vb4pex5vsknk084sn02q",
        ] {
            assert!(wrong.parse::<PrefixedId>().is_err(), "{wrong}");
        }
    }
}
