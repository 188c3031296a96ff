//! How the one tree is divided. One tree and not several, because then the engine can't recover some of them further than
//! others: the batch number that is found speaks for every key.
//!
//! | key | value |
//! |---|---|
//! | `n` | the last batch: its number, the highest fence, how many records there are |
//! | `r` id | a record |
//! | `u` batch | the records begun in that batch that are not completed yet |
//! | `e` first expiry, batch | the records completed in that batch, with their expiry |
//! | `t` | the time of the records, noted now and then |

use onlyonce_core::RecordId;

/// The last batch.
pub(crate) const LAST: &[u8] = b"n";
/// The time of the records.
pub(crate) const TIME: &[u8] = b"t";
/// Before the id of a record.
pub(crate) const RECORD: u8 = b'r';
/// Before the batch of a list of open records.
pub(crate) const OPEN: u8 = b'u';
/// Before the expiry of a list of completed records.
pub(crate) const EXPIRY: u8 = b'e';

/// A key, without an allocation of its own: there are several in every batch for every caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    bytes: [u8; 33],
    length: u8,
}

impl Key {
    fn new(parts: &[&[u8]]) -> Self {
        let mut key = Self { bytes: [0; 33], length: 0 };
        for part in parts {
            let start = usize::from(key.length);
            key.bytes[start..start + part.len()].copy_from_slice(part);
            key.length += part.len() as u8;
        }
        key
    }

    /// A key read back from the tree, unless it is none of ours.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= 33).then(|| Self::new(&[bytes]))
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl std::ops::Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

/// The key of the last batch.
pub(crate) fn last() -> Key {
    Key::new(&[LAST])
}

/// The key of the time of the records.
pub(crate) fn time() -> Key {
    Key::new(&[TIME])
}

pub(crate) fn record(id: &RecordId) -> Key {
    Key::new(&[&[RECORD], id.as_bytes()])
}

/// The id within the key of a record.
pub(crate) fn record_id(key: &[u8]) -> Option<RecordId> {
    let (prefix, id) = key.split_first()?;
    let id = <[u8; 32]>::try_from(id).ok()?;
    (*prefix == RECORD).then(|| RecordId::from_bytes(id))
}

pub(crate) fn open_list(batch: u64) -> Key {
    Key::new(&[&[OPEN], &batch.to_be_bytes()])
}

/// The batch within the key of a list of open records.
pub(crate) fn open_list_batch(key: &[u8]) -> Option<u64> {
    let (prefix, batch) = key.split_first()?;
    let batch = <[u8; 8]>::try_from(batch).ok()?;
    (*prefix == OPEN).then(|| u64::from_be_bytes(batch))
}

pub(crate) fn expiry_list(first: u64, batch: u64) -> Key {
    Key::new(&[&[EXPIRY], &first.to_be_bytes(), &batch.to_be_bytes()])
}

/// The first key after that of a list of completed records.
pub(crate) fn after_expiry_list(first: u64, batch: u64) -> Key {
    expiry_list(first, batch.saturating_add(1))
}

/// The first expiry and the batch within the key of a list of completed records.
pub(crate) fn expiry_list_parts(key: &[u8]) -> Option<(u64, u64)> {
    let key = <&[u8; 17]>::try_from(key).ok()?;
    let number = |at: usize| key[at..at + 8].iter().fold(0, |number, byte| (number << 8) | u64::from(*byte));
    (key[0] == EXPIRY).then(|| (number(1), number(9)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back() {
        let id = RecordId::from_bytes([7; 32]);
        assert_eq!(record_id(&record(&id)), Some(id));
        assert_eq!(open_list_batch(&open_list(258)), Some(258));
        assert_eq!(expiry_list_parts(&expiry_list(u64::MAX - 1, 258)), Some((u64::MAX - 1, 258)));
        assert_eq!(record_id(&open_list(1)), None);
        assert_eq!(open_list_batch(b""), None);
        assert_eq!(expiry_list_parts(b"e"), None);
    }

    #[test]
    fn lists_are_in_the_order_of_expiry() {
        assert!(expiry_list(255, 9)[..] < expiry_list(256, 1)[..]);
        assert!(expiry_list(256, 1)[..] < expiry_list(256, 2)[..]);
    }
}
