//! Who calls what under which key, and the one digest that names the record.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::error::InputError;
use crate::hex;

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 255;

/// The caller's name for one logical call: 1 to 255 bytes of text.
///
/// Keys are secrets of the caller: `Debug` hides the text, and only its digest reaches a store.
///
/// ```
/// use onlyonce_core::Key;
/// assert_eq!(Key::new("order-42")?.as_str(), "order-42");
/// assert!(Key::new("").is_err());
/// assert!(Key::new("x".repeat(256)).is_err());
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Box<str>);

impl Key {
    /// Takes the text as a key.
    ///
    /// # Errors
    /// If it is empty or longer than [`MAX_KEY_BYTES`].
    pub fn new(text: impl Into<Box<str>>) -> Result<Self, InputError> {
        let text = text.into();
        match text.len() {
            0 => Err(InputError::new("the key is empty; send 1 to 255 bytes that name this call")),
            1..=MAX_KEY_BYTES => Ok(Self(text)),
            n => Err(InputError::new(format!("the key has {n} bytes; the limit is {MAX_KEY_BYTES}"))),
        }
    }

    /// The text of the key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(<{} bytes>)", self.0.len())
    }
}

/// On whose behalf a call is made. Two scopes never share a record.
///
/// ```
/// use onlyonce_core::Scope;
/// let tenant = Scope::new("tenant-7")?;
/// assert_ne!(tenant, Scope::shared());
/// assert!(Scope::new("").is_err());
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Scope(Box<[u8]>);

impl Scope {
    /// The scope of one caller.
    ///
    /// # Errors
    /// If the name is empty: an empty tenant is nearly always a missing one, and would mix tenants.
    pub fn new(name: &str) -> Result<Self, InputError> {
        Self::from_parts([Some(name)])
    }

    /// A scope made of several parts, some of which may be absent; their positions count.
    ///
    /// # Errors
    /// If every part is absent, or a part is present but empty.
    pub fn from_parts<'a>(parts: impl IntoIterator<Item = Option<&'a str>>) -> Result<Self, InputError> {
        let mut encoded = Vec::new();
        let mut present = false;
        for part in parts {
            match part {
                Some("") => {
                    return Err(InputError::new(
                        "the scope is empty; name the caller, or use Scope::shared()",
                    ));
                }
                Some(text) => {
                    present = true;
                    encoded.push(1);
                    push_prefixed(&mut encoded, text.as_bytes());
                }
                None => encoded.push(0),
            }
        }
        if present {
            Ok(Self(encoded.into()))
        } else {
            Err(InputError::new("every part of the scope is absent"))
        }
    }

    /// One scope for all callers: right where keys are unguessable and answers are not personal.
    #[must_use]
    pub fn shared() -> Self {
        Self(Box::default())
    }
}

impl Scope {
    /// The bytes that tell scopes apart, for digests.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "Scope(shared)" } else { "Scope(<hidden>)" })
    }
}

/// What is called: a function's name, or method and path.
///
/// ```
/// use onlyonce_core::Operation;
/// assert_ne!(Operation::new("charge")?, Operation::http("POST", "/charge"));
/// assert!(Operation::new("").is_err());
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Operation(Box<[u8]>);

impl Operation {
    /// A named operation, such as `charge`.
    ///
    /// # Errors
    /// If the name is empty.
    pub fn new(name: &str) -> Result<Self, InputError> {
        if name.is_empty() {
            return Err(InputError::new("the operation has no name"));
        }
        Ok(Self::from_parts(&[name]))
    }

    /// An HTTP operation: the method and the path as it was sent.
    #[must_use]
    pub fn http(method: &str, path: &str) -> Self {
        Self::from_parts(&[method, path])
    }

    /// The bytes that tell operations apart, for digests.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn from_parts(parts: &[&str]) -> Self {
        let mut encoded = Vec::with_capacity(parts.iter().map(|p| p.len() + 8).sum());
        for part in parts {
            push_prefixed(&mut encoded, part.as_bytes());
        }
        Self(encoded.into())
    }
}

/// The name of a record: SHA-256 over the length-prefixed (scope, operation, key).
///
/// Fit to be logged and shown: the key can't be read from it, though a key that can be guessed can be recognised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId([u8; 32]);

impl RecordId {
    /// The id of the record for this call.
    #[must_use]
    pub fn of(scope: &Scope, operation: &Operation, key: &Key) -> Self {
        let mut hasher = Sha256::new();
        for part in [&scope.0[..], &operation.0[..], key.0.as_bytes()] {
            update_prefixed(&mut hasher, part);
        }
        Self(hasher.finalize().into())
    }

    /// The same as [`of`](Self::of) with [`Operation::http`], which need not be made for it.
    #[must_use]
    pub fn of_http(scope: &Scope, method: &str, path: &str, key: &Key) -> Self {
        let mut hasher = Sha256::new();
        update_prefixed(&mut hasher, &scope.0);
        hasher.update(((method.len() + path.len()) as u64 + 16).to_be_bytes());
        for part in [method, path, &key.0] {
            update_prefixed(&mut hasher, part.as_bytes());
        }
        Self(hasher.finalize().into())
    }

    /// The id with these bytes, as read back from a store.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for a store to key by.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// An id is a SHA-256 already: some of its bytes are as good a hash as any, for tables in memory.
    pub(crate) const fn hash(&self) -> u64 {
        let [_, _, _, _, _, _, _, _, a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(f, &self.0)
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordId({self})")
    }
}

impl FromStr for RecordId {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Self, InputError> {
        hex::read(text).map(Self).ok_or_else(|| {
            InputError::new("a record id is 64 hexadecimal digits, as `records list` prints it")
        })
    }
}

/// A short digest by which records can be searched without storing what they were made from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash16([u8; 16]);

impl Hash16 {
    /// The search digest of a key.
    #[must_use]
    pub fn of_key(key: &Key) -> Self {
        Self::of(b'k', key.0.as_bytes())
    }

    /// The search digest of a scope.
    #[must_use]
    pub fn of_scope(scope: &Scope) -> Self {
        Self::of(b's', &scope.0)
    }

    /// The digest with these bytes, as read back from a store.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    fn of(domain: u8, bytes: &[u8]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update([domain]);
        hasher.update(bytes);
        let digest: [u8; 32] = hasher.finalize().into();
        let mut short = [0; 16];
        short.copy_from_slice(&digest[..16]);
        Self(short)
    }
}

impl fmt::Display for Hash16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(f, &self.0)
    }
}

impl fmt::Debug for Hash16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash16({self})")
    }
}

fn update_prefixed(hasher: &mut Sha256, part: &[u8]) {
    hasher.update((part.len() as u64).to_be_bytes());
    hasher.update(part);
}

fn push_prefixed(out: &mut Vec<u8>, part: &[u8]) {
    out.extend_from_slice(&(part.len() as u64).to_be_bytes());
    out.extend_from_slice(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(scope: &Scope, operation: &Operation, key: &str) -> RecordId {
        RecordId::of(scope, operation, &Key::new(key).unwrap())
    }

    #[test]
    fn parts_cannot_slide_into_each_other() {
        let shared = Scope::shared();
        assert_ne!(
            id(&shared, &Operation::http("POST", "/ab"), "c"),
            id(&shared, &Operation::http("POST", "/a"), "bc")
        );
        let left = Scope::from_parts([Some("a"), None]).unwrap();
        let right = Scope::from_parts([None, Some("a")]).unwrap();
        assert_ne!(
            id(&left, &Operation::http("POST", "/"), "k"),
            id(&right, &Operation::http("POST", "/"), "k")
        );
    }

    #[test]
    fn an_http_call_has_one_id_however_it_is_made() {
        let key = Key::new("k").unwrap();
        for scope in [Scope::shared(), Scope::new("tenant").unwrap()] {
            for (method, path) in [("POST", "/orders"), ("PATCH", ""), ("", "/")] {
                let operation = Operation::http(method, path);
                assert_eq!(
                    RecordId::of_http(&scope, method, path, &key),
                    RecordId::of(&scope, &operation, &key)
                );
            }
        }
    }

    #[test]
    fn a_scope_needs_at_least_one_part() {
        assert!(Scope::from_parts([None, None]).is_err());
        assert!(Scope::from_parts([Some("a"), Some("")]).is_err());
    }

    #[test]
    fn an_id_reads_back_from_its_text() {
        let id = id(&Scope::shared(), &Operation::http("POST", "/"), "k");
        assert_eq!(id.to_string().parse::<RecordId>().unwrap(), id);
        assert!("zz".parse::<RecordId>().is_err());
        assert!("é".repeat(32).parse::<RecordId>().is_err());
    }

    #[test]
    fn debug_never_shows_a_key_or_a_scope() {
        let shown = format!("{:?} {:?}", Key::new("secret").unwrap(), Scope::new("secret").unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }
}
