//! One batch of the engine's journal: a start, items, and an end with a checksum over the items.

use std::io::{self, Read};

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use crate::keys;
use crate::stored::{Tag, Totals};

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const TRAILER: [u8; 4] = *b"FJL\x03";

/// A batch that was read in full.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    /// Our number.
    pub(super) number: u64,
    /// The engine's number.
    pub(super) sequence: u64,
    /// In bytes.
    pub(super) length: u64,
}

#[derive(Debug)]
pub(super) enum Parsed {
    Batch(Batch),
    /// Here is no whole batch.
    Nothing,
}

/// Reads one batch of at most `left` bytes.
pub(super) fn read(reader: &mut impl Read, left: u64, tag: &Tag) -> io::Result<Parsed> {
    match (Fields { reader, left, hasher: None }).batch(left, tag) {
        Ok(batch) => Ok(batch.map_or(Parsed::Nothing, Parsed::Batch)),
        Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => Ok(Parsed::Nothing),
        Err(cause) => Err(cause),
    }
}

struct Fields<'a, R> {
    reader: &'a mut R,
    left: u64,
    hasher: Option<Xxh3>,
}

impl<R: Read> Fields<'_, R> {
    fn batch(&mut self, available: u64, tag: &Tag) -> io::Result<Option<Batch>> {
        if self.array()? != [START] {
            return Ok(None);
        }
        let count = u32::from_le_bytes(self.array()?);
        let sequence = u64::from_le_bytes(self.array()?);
        self.hasher = Some(Xxh3::new());
        let mut totals = None;
        for _ in 0..count {
            let Some((key, value)) = self.item()? else { return Ok(None) };
            if key == keys::LAST {
                totals = Totals::decode(tag, value).ok();
            }
        }
        let expected = self.hasher.take().map(|hasher| hasher.digest());
        let is_end = self.array()? == [END];
        let found = u64::from_le_bytes(self.array()?);
        let is_whole = is_end && expected == Some(found) && self.array()? == TRAILER;
        let length = available - self.left;
        Ok(totals.filter(|_| is_whole).map(|totals| Batch { number: totals.batch, sequence, length }))
    }

    fn item(&mut self) -> io::Result<Option<(Bytes, Bytes)>> {
        let [tag, _value_type, compression] = self.array()?;
        if tag != ITEM || compression != 0 {
            return Ok(None);
        }
        let _keyspace: [u8; 8] = self.array()?;
        let key_length = u16::from_le_bytes(self.array()?);
        let value_length = u32::from_le_bytes(self.array()?);
        let stored_length = u32::from_le_bytes(self.array()?);
        if value_length != stored_length {
            return Ok(None);
        }
        Ok(Some((self.bytes(key_length.into())?, self.bytes(value_length.into())?)))
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.take(N as u64)?;
        self.reader.read_exact(&mut bytes)?;
        self.hash(&bytes);
        Ok(bytes)
    }

    fn bytes(&mut self, length: u64) -> io::Result<Bytes> {
        // Checked against what is left before any room is made: a damaged length may say gigabytes.
        self.take(length)?;
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| io::ErrorKind::UnexpectedEof)?];
        self.reader.read_exact(&mut bytes)?;
        self.hash(&bytes);
        Ok(bytes.into())
    }

    fn take(&mut self, length: u64) -> io::Result<()> {
        self.left = self.left.checked_sub(length).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(())
    }

    fn hash(&mut self, bytes: &[u8]) {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
    }
}
