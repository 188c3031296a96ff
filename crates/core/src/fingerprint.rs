//! The digest of a call's payload: the same key with another payload is a mistake of the caller.

use std::fmt;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::InputError;
use crate::hex;

/// A versioned digest of what a call carries besides its key.
///
/// Digests of different versions cannot be compared; such a comparison fails closed, it is never "equal".
///
/// ```
/// use onlyonce_core::Fingerprint;
/// let paid = Fingerprint::of(&("order-42", 100))?;
/// assert_eq!(paid, Fingerprint::of(&("order-42", 100))?);
/// assert_ne!(paid, Fingerprint::of(&("order-42", 999))?);
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    version: u8,
    digest: [u8; 32],
}

impl Fingerprint {
    /// The version that this release writes and compares.
    pub const VERSION: u8 = 1;

    /// The fingerprint of a call without a payload.
    #[must_use]
    pub fn empty() -> Self {
        FingerprintBuilder::new().finish()
    }

    /// The fingerprint of a value. Maps are taken in the order of their keys, so that a `HashMap` has one fingerprint.
    ///
    /// # Errors
    /// If the value can't be represented as JSON (for instance a map whose keys are not strings).
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, InputError> {
        let value = serde_json::to_value(value)
            .map_err(|cause| InputError::new(format!("the input can't be fingerprinted: {cause}")))?;
        Ok(FingerprintBuilder::new().json(&value).finish())
    }

    /// A fingerprint read back from a store.
    #[must_use]
    pub const fn from_parts(version: u8, digest: [u8; 32]) -> Self {
        Self { version, digest }
    }

    /// The version of the rules by which it was made.
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.version
    }

    /// The digest.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}:", self.version)?;
        hex::write(f, &self.digest)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Takes a payload part by part; every part is length-prefixed, so that parts can't slide into each other.
///
/// ```
/// use onlyonce_core::FingerprintBuilder;
/// let ab = FingerprintBuilder::new().part(b"a").part(b"b").finish();
/// assert_ne!(ab, FingerprintBuilder::new().part(b"ab").finish());
/// ```
#[derive(Debug, Clone)]
pub struct FingerprintBuilder(Sha256);

impl Default for FingerprintBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl FingerprintBuilder {
    /// An empty payload.
    #[must_use]
    pub fn new() -> Self {
        Self(Sha256::new_with_prefix([Fingerprint::VERSION]))
    }

    /// Adds bytes.
    #[must_use]
    pub fn part(mut self, bytes: &[u8]) -> Self {
        self.bytes(b'b', bytes);
        self
    }

    /// Adds a part that may be absent; absent and empty are different payloads.
    #[must_use]
    pub fn optional(mut self, bytes: Option<&[u8]>) -> Self {
        match bytes {
            Some(bytes) => self.bytes(b'b', bytes),
            None => self.0.update(b"-"),
        }
        self
    }

    /// Adds a JSON value by its meaning: member order and white space do not count.
    #[must_use]
    pub fn json(mut self, value: &Value) -> Self {
        self.value(value);
        self
    }

    /// The fingerprint of all parts.
    #[must_use]
    pub fn finish(self) -> Fingerprint {
        Fingerprint { version: Fingerprint::VERSION, digest: self.0.finalize().into() }
    }

    fn bytes(&mut self, tag: u8, bytes: &[u8]) {
        self.count(tag, bytes.len());
        self.0.update(bytes);
    }

    fn count(&mut self, tag: u8, count: usize) {
        self.0.update([tag]);
        self.0.update((count as u64).to_be_bytes());
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.0.update(b"n"),
            Value::Bool(yes) => self.0.update(if *yes { b"t" } else { b"f" }),
            Value::Number(number) => self.bytes(b'#', number.to_string().as_bytes()),
            Value::String(text) => self.bytes(b'"', text.as_bytes()),
            Value::Array(items) => {
                self.count(b'[', items.len());
                items.iter().for_each(|item| self.value(item));
            }
            Value::Object(members) => {
                self.count(b'{', members.len());
                // Sorted here, because a crate elsewhere in the build may have switched on `preserve_order`.
                let mut members: Vec<_> = members.iter().collect();
                members.sort_unstable_by_key(|(name, _)| *name);
                for (name, member) in members {
                    self.bytes(b'"', name.as_bytes());
                    self.value(member);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Fingerprint {
        FingerprintBuilder::new().json(&serde_json::from_str(text).unwrap()).finish()
    }

    #[test]
    fn json_is_compared_by_meaning() {
        assert_eq!(json(r#"{"a":1,"b":[2,3]}"#), json(r#"{ "b": [2, 3], "a": 1 }"#));
        assert_ne!(json(r#"{"a":1}"#), json(r#"{"a":"1"}"#));
        assert_ne!(json(r#"[[1],2]"#), json(r#"[[1,2]]"#));
        assert_ne!(json("null"), json("{}"));
    }

    #[test]
    fn absent_differs_from_empty() {
        let absent = FingerprintBuilder::new().optional(None).finish();
        assert_ne!(absent, FingerprintBuilder::new().optional(Some(b"")).finish());
        assert_ne!(absent, Fingerprint::empty());
    }
}
