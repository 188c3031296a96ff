//! A small versioned binary form for what adapters store, which refuses what it does not know.
//!
//! Every document starts with a format letter and a version. Fields follow in a fixed order; a reader must take all of
//! them, so that a longer document from a newer release is an error and never half understood.

use std::fmt;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

/// Why stored bytes could not be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodecError {
    /// The document is of another format.
    Format {
        /// The letter that was expected.
        expected: u8,
        /// The letter that was found.
        found: u8,
    },
    /// The document has a version that this release does not know.
    Version {
        /// The format's letter.
        format: u8,
        /// The version that was found.
        found: u8,
    },
    /// The bytes are not those that were written.
    Damaged,
    /// The document ends too early.
    Truncated,
    /// The document goes on after its last field.
    Trailing,
    /// A field holds what it can't.
    Invalid(String),
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format { expected, found } => {
                write!(
                    f,
                    "expected stored format {:?}, found {:?}",
                    char::from(*expected),
                    char::from(*found)
                )
            }
            Self::Version { format, found } => write!(
                f,
                "stored format {:?} has version {found}, which this release does not know; was it written by a newer one?",
                char::from(*format)
            ),
            Self::Damaged => f.write_str("stored bytes were changed: their checksum does not match"),
            Self::Truncated => f.write_str("stored bytes end too early"),
            Self::Trailing => f.write_str("stored bytes go on after their end"),
            Self::Invalid(what) => write!(f, "stored bytes are invalid: {what}"),
        }
    }
}

impl std::error::Error for CodecError {}

/// Writes a document.
///
/// ```
/// use onlyonce_core::codec::{Reader, Writer};
/// let stored = Writer::new(b'X', 1).number(200).bytes(b"hello").finish();
/// let mut reader = Reader::new(stored, b'X', 1)?;
/// assert_eq!(reader.number()?, 200);
/// assert_eq!(reader.bytes()?, "hello");
/// reader.finish()?;
/// # Ok::<(), onlyonce_core::codec::CodecError>(())
/// ```
#[derive(Debug)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// A document of this format and version.
    #[must_use]
    pub fn new(format: u8, version: u8) -> Self {
        Self::with_capacity(format, version, 0)
    }

    /// The same, with room for `capacity` more bytes.
    #[must_use]
    pub fn with_capacity(format: u8, version: u8, capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity + 2);
        bytes.extend_from_slice(&[format, version]);
        Self(bytes)
    }

    /// Adds a number, seven bits a byte, the lowest first.
    #[must_use]
    pub fn number(mut self, mut number: u64) -> Self {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
        self
    }

    /// Adds bytes with their length.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let mut writer = self.number(bytes.len() as u64);
        writer.0.extend_from_slice(bytes);
        writer
    }

    /// The document.
    #[must_use]
    pub fn finish(self) -> Bytes {
        self.0.into()
    }

    /// The document with a checksum at its end, for [`Reader::sealed`]: what changes in memory, on disk or on a server on its way
    /// is refused, and never given to a caller.
    ///
    /// ```
    /// use onlyonce_core::codec::{CodecError, Reader, Writer};
    /// let mut stored = Writer::new(b'X', 1).bytes(b"100 EUR").seal().to_vec();
    /// stored[3] ^= 1;
    /// assert_eq!(Reader::sealed(stored.into(), b'X', 1).unwrap_err(), CodecError::Damaged);
    /// ```
    #[must_use]
    pub fn seal(mut self) -> Bytes {
        let checksum = xxh3_64(&self.0).to_be_bytes();
        self.0.extend_from_slice(&checksum);
        self.0.into()
    }
}

/// How many bytes [`Writer::seal`] adds.
pub const SEAL_BYTES: usize = 8;

/// How many bytes [`Writer::number`] writes.
#[must_use]
pub const fn size_of_number(number: u64) -> usize {
    match number {
        0 => 1,
        _ => (number.ilog2() / 7 + 1) as usize,
    }
}

/// How many bytes [`Writer::bytes`] writes.
#[must_use]
pub const fn size_of_bytes(bytes: &[u8]) -> usize {
    size_of_number(bytes.len() as u64) + bytes.len()
}

/// Reads a document; never panics, whatever the bytes.
#[derive(Debug)]
pub struct Reader(Bytes);

impl Reader {
    /// Opens a document of this format and version.
    ///
    /// # Errors
    /// If it is of another format, or of a version other than `version`.
    pub fn new(mut document: Bytes, format: u8, version: u8) -> Result<Self, CodecError> {
        let &[found_format, found_version, ..] = &document[..] else { return Err(CodecError::Truncated) };
        if found_format != format {
            return Err(CodecError::Format { expected: format, found: found_format });
        }
        if found_version != version {
            return Err(CodecError::Version { format, found: found_version });
        }
        Ok(Self(document.split_off(2)))
    }

    /// Opens a document that was [sealed](Writer::seal).
    ///
    /// # Errors
    /// As [`new`](Self::new), and if it is not as it was written.
    pub fn sealed(mut document: Bytes, format: u8, version: u8) -> Result<Self, CodecError> {
        // First, so that a document of another version is not taken for a damaged one.
        Self::new(document.clone(), format, version)?;
        let end = document.len().checked_sub(SEAL_BYTES).ok_or(CodecError::Truncated)?;
        let checksum = document.split_off(end);
        if checksum[..] != xxh3_64(&document).to_be_bytes() {
            return Err(CodecError::Damaged);
        }
        Self::new(document, format, version)
    }

    /// Takes a number.
    ///
    /// # Errors
    /// If there is none.
    pub fn number(&mut self) -> Result<u64, CodecError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.0.first().ok_or(CodecError::Truncated)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            self.0 = self.0.slice(1..);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(CodecError::Invalid("a number has more than 64 bits".into()))
    }

    /// Takes a number that must be a count or length in memory.
    ///
    /// # Errors
    /// If there is none, or it is larger than what is left of the document.
    pub fn length(&mut self) -> Result<usize, CodecError> {
        let length = self.number()?;
        usize::try_from(length).ok().filter(|length| *length <= self.0.len()).ok_or(CodecError::Truncated)
    }

    /// Takes bytes, without copying them.
    ///
    /// # Errors
    /// If the document ends within them.
    pub fn bytes(&mut self) -> Result<Bytes, CodecError> {
        let length = self.length()?;
        Ok(self.0.split_to(length))
    }

    /// Ends reading.
    ///
    /// # Errors
    /// If something is left.
    pub fn finish(self) -> Result<(), CodecError> {
        if self.0.is_empty() { Ok(()) } else { Err(CodecError::Trailing) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(bytes: &'static [u8]) -> Result<Reader, CodecError> {
        Reader::new(Bytes::from_static(bytes), b'X', 1)
    }

    #[test]
    fn of_a_sealed_document_no_bit_can_change_unnoticed() {
        let sealed = Writer::new(b'X', 1).number(200).bytes(b"hello").seal();
        let mut reader = Reader::sealed(sealed.clone(), b'X', 1).unwrap();
        assert_eq!((reader.number().unwrap(), &reader.bytes().unwrap()[..]), (200, &b"hello"[..]));
        reader.finish().unwrap();
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Reader::sealed(changed.into(), b'X', 1).is_err(), "bit {bit}");
        }
        for end in 0..sealed.len() {
            assert!(Reader::sealed(sealed.slice(..end), b'X', 1).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn numbers_round_trip_at_their_edges() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut reader = Reader::new(Writer::new(b'X', 1).number(number).finish(), b'X', 1).unwrap();
            assert_eq!(reader.number().unwrap(), number);
            reader.finish().unwrap();
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert_eq!(open(b"").unwrap_err(), CodecError::Truncated);
        assert_eq!(open(b"Y\x01").unwrap_err(), CodecError::Format { expected: b'X', found: b'Y' });
        assert_eq!(open(b"X\x02").unwrap_err(), CodecError::Version { format: b'X', found: 2 });
        assert_eq!(open(b"X\x01\x05ab").unwrap().bytes().unwrap_err(), CodecError::Truncated);
        assert_eq!(open(b"X\x01ab").unwrap().finish().unwrap_err(), CodecError::Trailing);
        assert_eq!(open(b"X\x01\x80").unwrap().number().unwrap_err(), CodecError::Truncated);
        let overlong = b"X\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        assert!(matches!(open(overlong).unwrap().number().unwrap_err(), CodecError::Invalid(_)));
    }
}
