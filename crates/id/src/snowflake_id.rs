//! An id as it is written and read.

use std::fmt;
use std::str::FromStr;

use onlyonce_core::InputError;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::crockford;

const DIGITS: usize = 13;

/// A Snowflake id: a positive number that sorts by time.
///
/// In JSON it is a string, because JavaScript rounds numbers beyond 53 bits; both strings and numbers are read.
///
/// ```
/// use onlyonce_id::SnowflakeId;
/// let id: SnowflakeId = "1541815603606036480".parse()?;
/// assert_eq!(id.sortable(), "1asd13xh1f800");
/// assert_eq!(SnowflakeId::from_sortable("1ASD13XH1F800")?, id);
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SnowflakeId(u64);

impl SnowflakeId {
    /// The id with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// 13 digits of Crockford's base 32: text that sorts as the ids do.
    #[must_use]
    pub fn sortable(self) -> String {
        crockford::write(self.0.into(), DIGITS)
    }

    /// Reads the sortable form.
    ///
    /// # Errors
    /// If the text is not 13 such digits, or more than 64 bits.
    pub fn from_sortable(text: &str) -> Result<Self, InputError> {
        let number = crockford::read(text, DIGITS, 64).and_then(|number| u64::try_from(number).ok());
        number.map(Self).ok_or_else(|| {
            InputError::new("the sortable form of an id is 13 digits and letters without i, l, o and u")
        })
    }
}

impl fmt::Display for SnowflakeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for SnowflakeId {
    type Err = InputError;

    /// Reads the decimal form.
    fn from_str(text: &str) -> Result<Self, InputError> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| text.parse().ok()).flatten();
        number.map(Self).ok_or_else(|| InputError::new("an id is a decimal number below 2^64"))
    }
}

impl From<SnowflakeId> for u64 {
    fn from(id: SnowflakeId) -> Self {
        id.0
    }
}

impl Serialize for SnowflakeId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SnowflakeId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl de::Visitor<'_> for Either {
            type Value = SnowflakeId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id as a decimal string or a number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<SnowflakeId, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<SnowflakeId, E> {
                Ok(SnowflakeId(number))
            }
        }
        // `any`, because self-describing formats may hold either; others are read as they were written: as text.
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(Either)
        } else {
            deserializer.deserialize_str(Either)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_a_string_so_that_no_browser_rounds_it() {
        let id = SnowflakeId::new(u64::MAX);
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"18446744073709551615\"");
        assert_eq!(serde_json::from_str::<SnowflakeId>("\"18446744073709551615\"").unwrap(), id);
        assert_eq!(serde_json::from_str::<SnowflakeId>("7").unwrap(), SnowflakeId::new(7));
        for wrong in ["-1", "1.5", "\"\"", "\"+1\"", "\"1x\"", "\"18446744073709551616\"", "null"] {
            assert!(serde_json::from_str::<SnowflakeId>(wrong).is_err(), "{wrong}");
        }
    }
}
