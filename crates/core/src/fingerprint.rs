//! The digest of a call's payload: the same key with another payload is a mistake of the caller.

use std::fmt;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::canonical::{self, Items, Writer};
use crate::error::InputError;
use crate::hex;
use crate::json::Json;

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
    ///
    /// Rules that only tell apart what was taken for the same before (an infinity and `null`, two integers beyond 64 bits) are no
    /// new version: all other payloads keep their fingerprints, so that calls of the time before get their answers.
    pub const VERSION: u8 = 1;

    /// The fingerprint of a call without a payload.
    #[must_use]
    pub fn empty() -> Self {
        FingerprintBuilder::new().finish()
    }

    /// The fingerprint of a value: two of one type have the same if, and only if, they are the same value. Maps are taken in the
    /// order of their keys, so that a `HashMap` has one fingerprint.
    ///
    /// # Errors
    /// If the value can't be written (for instance a map whose keys are not strings).
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, InputError> {
        let bytes = canonical::encode(value, Items::InOrder)
            .map_err(|cause| InputError::new(format!("the input can't be fingerprinted: {cause}")))?;
        Ok(FingerprintBuilder::new().canonical(&bytes).finish())
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

    /// Adds a JSON value by its meaning: member order and white space do not count, every digit of a number does.
    #[must_use]
    pub fn json(self, value: &Json<'_>) -> Self {
        let mut writer = Writer::new();
        value.write(&mut writer);
        self.canonical(&writer.into_bytes())
    }

    fn canonical(mut self, bytes: &[u8]) -> Self {
        self.0.update(bytes);
        self
    }

    /// The fingerprint of all parts.
    #[must_use]
    pub fn finish(self) -> Fingerprint {
        Fingerprint { version: Fingerprint::VERSION, digest: self.0.finalize().into() }
    }

    fn bytes(&mut self, tag: u8, bytes: &[u8]) {
        self.0.update([tag]);
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;

    fn json(text: &str) -> Fingerprint {
        FingerprintBuilder::new().json(&Json::parse(text.as_bytes()).unwrap()).finish()
    }

    fn of<T: Serialize>(value: T) -> Fingerprint {
        Fingerprint::of(&value).unwrap()
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

    #[test]
    fn values_that_json_takes_for_the_same_are_told_apart() {
        let numbers = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, f64::MAX];
        let mut seen: Vec<_> = numbers.map(|number| of(Some(number))).into();
        seen.push(of(None::<f64>));
        seen.push(of(f32::NAN.to_string()));
        for (place, one) in seen.iter().enumerate() {
            assert!(seen[..place].iter().all(|other| other != one), "{place}");
        }
        assert_ne!(of(Some(())), of(None::<()>));
        assert_ne!(of(Some(None::<u8>)), of(None::<Option<u8>>));
        assert_ne!(of(Some(Some(None::<u8>))), of(Some(None::<Option<u8>>)));
        assert_ne!(of(u128::MAX), of(u128::MAX - 1));
        assert_ne!(of(i128::MIN), of(i128::MIN + 1));
        assert_ne!(of(1_u128 << 64), of(2_f64.powi(64)));
    }

    #[test]
    fn a_member_that_is_there_twice_counts_twice() {
        struct Pairs(&'static [(&'static str, u8)]);
        impl Serialize for Pairs {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().copied())
            }
        }
        let twice = of(Pairs(&[("a", 1), ("a", 2)]));
        assert_ne!(twice, of(Pairs(&[("a", 2)])));
        assert_ne!(twice, of(Pairs(&[("a", 2), ("a", 2)])));
    }

    #[derive(Serialize)]
    enum Kind {
        Plain,
        One(u8),
        Two(u8, u8),
        Named { b: Option<u8>, a: char },
    }

    /// As releases before this one made it, and stores still hold it.
    fn stored(value: &serde_json::Value) -> Fingerprint {
        fn write(hash: &mut Sha256, value: &serde_json::Value) {
            use serde_json::Value;
            let mut bytes = |tag: u8, bytes: &[u8]| {
                hash.update([tag]);
                hash.update((bytes.len() as u64).to_be_bytes());
                hash.update(bytes);
            };
            match value {
                Value::Null => hash.update(b"n"),
                Value::Bool(yes) => hash.update(if *yes { b"t" } else { b"f" }),
                Value::Number(number) => bytes(b'#', number.to_string().as_bytes()),
                Value::String(text) => bytes(b'"', text.as_bytes()),
                Value::Array(items) => {
                    hash.update(b"[");
                    hash.update((items.len() as u64).to_be_bytes());
                    items.iter().for_each(|item| write(hash, item));
                }
                Value::Object(members) => {
                    hash.update(b"{");
                    hash.update((members.len() as u64).to_be_bytes());
                    for (name, member) in members.iter().collect::<BTreeMap<_, _>>() {
                        write(hash, &Value::String(name.clone()));
                        write(hash, member);
                    }
                }
            }
        }
        let mut hash = Sha256::new_with_prefix([1]);
        write(&mut hash, value);
        Fingerprint::from_parts(1, hash.finalize().into())
    }

    #[test]
    fn calls_of_the_time_before_are_recognised() {
        fn same<T: Serialize>(value: T) {
            assert_eq!(of(&value), stored(&serde_json::to_value(&value).unwrap()));
        }
        same(("order-42", 100, -7_i8, u64::MAX, i64::MIN, true, ()));
        same((0.1, -0.0, 1e300, 12.5_f32, 0.1_f32, 1e16, 1e-7, 'ß', None::<u8>, Some("x")));
        same([
            Kind::Plain,
            Kind::One(1),
            Kind::Two(1, 2),
            Kind::Named { b: None, a: 'x' },
            Kind::Named { b: Some(1), a: 'y' },
        ]);
        same((0..100).map(|n| (n.to_string(), n)).collect::<HashMap<_, _>>());
        same(HashMap::from([(10, "a"), (9, "b")]));
        same(serde_json::json!({"b": [1, {"d": null, "c": 2.5}], "": "", "a": {}}));
        let text = r#"{"b": [1, {"d": null, "c": 2.5}], "é\n": "\u0041", "n": [1.10, 1e2, -0, 100]}"#;
        assert_eq!(json(text), stored(&serde_json::from_str(text).unwrap()));
    }
}
