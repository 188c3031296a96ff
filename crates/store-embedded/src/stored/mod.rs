//! Records, lists and the batch number as bytes, each with a checksum of its own: damage within a value is the matter of
//! that value only, whatever the engine below noticed.

mod list;
mod note;
mod record;
mod totals;

use std::fmt;

use bytes::Bytes;
use onlyonce_core::Moment;
use onlyonce_core::codec::{CodecError, Reader, Writer};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) use list::{Due, OpenItem, OpenKind, decode_due, decode_open, encode_due, encode_open};
pub(crate) use note::{decode_note, encode_note};
pub(crate) use record::{decode_record, encode_record};
pub(crate) use totals::{TAG_BYTES, Tag, Totals};

const CHECKSUM_BYTES: usize = 8;
const VERSION: u8 = 1;

/// Why a stored value can't be used.
#[derive(Debug)]
pub(crate) enum Damage {
    /// The bytes are not those that were written.
    Checksum,
    /// The bytes are as written, but not understood.
    Codec(CodecError),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checksum => {
                f.write_str("the stored bytes were changed on disk: their checksum does not match")
            }
            Self::Codec(cause) => cause.fmt(f),
        }
    }
}

impl std::error::Error for Damage {}

impl From<CodecError> for Damage {
    fn from(cause: CodecError) -> Self {
        Self::Codec(cause)
    }
}

/// A value to be written, and its checksum, which follows it on disk.
#[derive(Debug, Clone)]
pub(crate) struct Sealed {
    pub(crate) body: Bytes,
    pub(crate) checksum: [u8; CHECKSUM_BYTES],
}

impl Sealed {
    pub(crate) fn len(&self) -> usize {
        self.body.len() + CHECKSUM_BYTES
    }

    /// The bytes as they will be on disk.
    pub(crate) fn to_bytes(&self) -> Bytes {
        [&self.body[..], &self.checksum].concat().into()
    }
}

/// Adds the checksum. The key is part of it, so that a value found under another key is damage too.
fn seal(key: &[u8], body: Writer) -> Sealed {
    let body = body.finish();
    let checksum = checksum(key, &body);
    Sealed { body, checksum }
}

fn unseal(key: &[u8], mut bytes: Bytes) -> Result<Bytes, Damage> {
    let body = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or(Damage::Checksum)?;
    let stored = bytes.split_off(body);
    if stored != checksum(key, &bytes)[..] { Err(Damage::Checksum) } else { Ok(bytes) }
}

pub(crate) fn checksum(key: &[u8], bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    xxh3_64_with_seed(bytes, xxh3_64_with_seed(key, 0)).to_le_bytes()
}

fn array<const N: usize>(reader: &mut Reader) -> Result<[u8; N], Damage> {
    <[u8; N]>::try_from(&reader.bytes()?[..]).map_err(|_| invalid("a field has another length"))
}

fn small<T: TryFrom<u64>>(reader: &mut Reader, what: &str) -> Result<T, Damage> {
    T::try_from(reader.number()?).map_err(|_| invalid(&format!("{what}: the number is too large")))
}

fn moment(reader: &mut Reader) -> Result<Moment, CodecError> {
    reader.number().map(Moment::from_micros)
}

fn invalid(what: &str) -> Damage {
    Damage::Codec(CodecError::Invalid(what.into()))
}
