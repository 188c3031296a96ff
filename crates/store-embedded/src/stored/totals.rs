//! The number of a batch, and what is true after it.

use bytes::Bytes;
use onlyonce_core::codec::{Reader, Writer};

use super::{Damage, Sealed, VERSION, array, invalid, seal, unseal};

/// What is true after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    /// The number of the batch, from 1, without gaps.
    pub(crate) batch: u64,
    /// The highest fence ever given out, which must not fall even if its record is gone and the clock was set back.
    pub(crate) last_fence: u64,
    /// How many records there are, expired ones included.
    pub(crate) records: u64,
}

pub(crate) const TAG_BYTES: usize = 16;
/// Marks the batches of one store: random, so that no stored answer can look like one.
pub(crate) type Tag = [u8; TAG_BYTES];

impl Totals {
    /// The number right after the tag has a fixed width, so that it can be read where the rest is torn.
    pub(crate) fn encode(&self, tag: &Tag) -> Sealed {
        let body = Writer::with_capacity(b'N', VERSION, 64)
            .bytes(tag)
            .bytes(&self.batch.to_le_bytes())
            .number(self.last_fence)
            .number(self.records);
        seal(tag, body)
    }

    pub(crate) fn decode(tag: &Tag, bytes: Bytes) -> Result<Self, Damage> {
        let mut reader = Reader::new(unseal(tag, bytes)?, b'N', VERSION)?;
        if reader.bytes()? != tag[..] {
            return Err(invalid("the batch is of another store"));
        }
        let batch = u64::from_le_bytes(array(&mut reader)?);
        let totals = Self { batch, last_fence: reader.number()?, records: reader.number()? };
        reader.finish()?;
        Ok(totals)
    }

    /// The batch number that follows `tag` in torn bytes which begin with the tag.
    pub(crate) fn torn_batch(after_tag: &[u8]) -> Option<u64> {
        let number = after_tag.get(TAG_BYTES + 1..TAG_BYTES + 9)?;
        Some(u64::from_le_bytes(number.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_read_back_and_the_number_is_found_in_torn_bytes() {
        let tag = [5; TAG_BYTES];
        let totals = Totals { batch: 1 << 40, last_fence: 7, records: 3 };
        let bytes = totals.encode(&tag).to_bytes();
        assert_eq!(Totals::decode(&tag, bytes.clone()).unwrap(), totals);
        assert!(Totals::decode(&[6; TAG_BYTES], bytes.clone()).is_err());
        let at = bytes.windows(TAG_BYTES).position(|window| window == tag).unwrap();
        assert_eq!(Totals::torn_batch(&bytes[at..at + 25]), Some(1 << 40));
        assert_eq!(Totals::torn_batch(&bytes[at..at + 24]), None);
    }
}
