//! The form of a signed token: it carries all that is needed to judge it, so that issuing stores nothing.
//!
//! ```text
//!  version 1 │ mode 1 │ key id 4 │ expires 8 (ms since 1970) │ nonce 16 │ subject and action 16 │ HMAC-SHA-256 32
//! ```
//! in hexadecimal. The tag covers everything before it.

use sha2::{Digest, Sha256};

use super::keys::TokenKeys;
use crate::hex;
use crate::key::{Operation, Scope};
use crate::policy::Mode;

const VERSION: u8 = 1;
const SIGNED: usize = 46;
const WHOLE: usize = SIGNED + 32;

/// What a token says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) mode: Mode,
    pub(super) expires_millis: u64,
    pub(super) nonce: [u8; 16],
    pub(super) bound_to: [u8; 16],
}

/// The digest of who may do what with a token.
pub(super) fn binding(subject: &Scope, action: &Operation) -> [u8; 16] {
    let mut hasher = Sha256::new_with_prefix(b"onlyonce token");
    for part in [subject.as_bytes(), action.as_bytes()] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let digest: [u8; 32] = hasher.finalize().into();
    let mut short = [0; 16];
    short.copy_from_slice(&digest[..16]);
    short
}

pub(super) fn write(claims: &Claims, keys: &TokenKeys) -> String {
    let mut token = Vec::with_capacity(WHOLE);
    token.push(VERSION);
    token.push(match claims.mode {
        Mode::Replay => 0,
        Mode::Reject => 1,
    });
    token.extend(keys.current().to_be_bytes());
    token.extend(claims.expires_millis.to_be_bytes());
    token.extend(claims.nonce);
    token.extend(claims.bound_to);
    let tag = keys.sign(&token);
    token.extend(tag);
    hex::text(&token)
}

/// What a token says, if one of the keys has signed it.
pub(super) fn read(text: &str, keys: &TokenKeys) -> Option<Claims> {
    let token: [u8; WHOLE] = hex::read(text)?;
    let (signed, tag) = token.split_at(SIGNED);
    let key_id = u32::from_be_bytes(part(signed, 2));
    // The tag first: nothing that a stranger wrote is looked at.
    if !keys.verify(key_id, signed, tag) || signed[0] != VERSION {
        return None;
    }
    let mode = match signed[1] {
        0 => Mode::Replay,
        1 => Mode::Reject,
        _ => return None,
    };
    let expires_millis = u64::from_be_bytes(part(signed, 6));
    Some(Claims { mode, expires_millis, nonce: part(signed, 14), bound_to: part(signed, 30) })
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}
