//! The keys that tokens are signed with.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::InputError;

/// The shortest secret, in bytes.
const SHORTEST: usize = 32;

/// A signing key and older ones that are still accepted, told apart by their ids.
///
/// To change the key: add the new one everywhere with [`also`](Self::also), then make it the first, and drop the old one when
/// the last token that was signed with it has expired.
///
/// ```
/// use onlyonce_core::token::TokenKeys;
/// let before = TokenKeys::new(1, [7; 32])?;
/// let after = TokenKeys::new(2, [8; 32])?.also(1, [7; 32])?;
/// assert!(TokenKeys::new(3, "short").is_err());
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Clone)]
pub struct TokenKeys(Vec<(u32, Hmac<Sha256>)>);

impl TokenKeys {
    /// Signs with this secret of at least 32 random bytes.
    ///
    /// # Errors
    /// If the secret is shorter.
    pub fn new(id: u32, secret: impl AsRef<[u8]>) -> Result<Self, InputError> {
        Self(Vec::new()).also(id, secret)
    }

    /// Signs with a new secret that nobody else has: tokens are good for as long as this process lives.
    #[must_use]
    pub fn random() -> Self {
        let secret: [u8; SHORTEST] = rand::random();
        Self(vec![(rand::random(), hmac(&secret))])
    }

    /// Accepts tokens that were signed with this secret, too.
    ///
    /// # Errors
    /// If the secret is shorter than 32 bytes, or the id is there already.
    pub fn also(mut self, id: u32, secret: impl AsRef<[u8]>) -> Result<Self, InputError> {
        let secret = secret.as_ref();
        if secret.len() < SHORTEST {
            return Err(InputError::new(format!(
                "the secret of token key {id} has {} bytes; it needs at least {SHORTEST}, from a random source",
                secret.len()
            )));
        }
        if self.0.iter().any(|(known, _)| *known == id) {
            return Err(InputError::new(format!("there are two token keys with the id {id}")));
        }
        self.0.push((id, hmac(secret)));
        Ok(self)
    }

    /// The id of the key that signs.
    pub(super) fn current(&self) -> u32 {
        self.0.first().map_or(0, |(id, _)| *id)
    }

    pub(super) fn sign(&self, message: &[u8]) -> [u8; 32] {
        let mut mac = self.0.first().map_or_else(|| hmac(&[]), |(_, mac)| mac.clone());
        mac.update(message);
        mac.finalize().into_bytes().into()
    }

    /// Whether the key with this id made the tag; compared in constant time.
    pub(super) fn verify(&self, id: u32, message: &[u8], tag: &[u8]) -> bool {
        let Some((_, mac)) = self.0.iter().find(|(known, _)| *known == id) else { return false };
        let mut mac = mac.clone();
        mac.update(message);
        mac.verify_slice(tag).is_ok()
    }
}

fn hmac(secret: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret).expect("HMAC takes a key of any length")
}

impl fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(id, _)| id)).finish()
    }
}
