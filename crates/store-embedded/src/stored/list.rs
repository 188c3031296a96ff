//! The lists that index records: one value a batch instead of one key a record, which is what keeps begin and settle close
//! to the two puts that they can't do without.

use bytes::Bytes;
use onlyonce_core::RecordId;
use onlyonce_core::codec::{Reader, Writer};

use super::{Damage, Sealed, VERSION, array, invalid, seal, unseal};

/// A completed record and when it expires, on the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) id: RecordId,
    pub(crate) expires: u64,
}

/// Why a record is still open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenKind {
    /// It runs or has lapsed: its lease tells.
    Unsettled,
    /// It did not happen.
    Released,
    /// Nobody knows.
    Unknown,
}

/// A record that is not completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenItem {
    pub(crate) id: RecordId,
    pub(crate) created: u64,
    pub(crate) expires: u64,
    pub(crate) kind: OpenKind,
}

pub(crate) fn encode_due(key: &[u8], items: &[Due]) -> Sealed {
    let mut body = Writer::with_capacity(b'E', VERSION, items.len() * 48 + 16).number(items.len() as u64);
    for item in items {
        body = body.bytes(item.id.as_bytes()).number(item.expires);
    }
    seal(key, body)
}

pub(crate) fn decode_due(key: &[u8], bytes: Bytes) -> Result<Vec<Due>, Damage> {
    let mut reader = Reader::new(unseal(key, bytes)?, b'E', VERSION)?;
    let items = (0..reader.length()?)
        .map(|_| Ok(Due { id: RecordId::from_bytes(array(&mut reader)?), expires: reader.number()? }))
        .collect::<Result<_, Damage>>()?;
    reader.finish()?;
    Ok(items)
}

pub(crate) fn encode_open(key: &[u8], items: &[OpenItem]) -> Sealed {
    let mut body = Writer::with_capacity(b'U', VERSION, items.len() * 56 + 16).number(items.len() as u64);
    for item in items {
        let kind = match item.kind {
            OpenKind::Unsettled => 0,
            OpenKind::Released => 1,
            OpenKind::Unknown => 2,
        };
        body = body.bytes(item.id.as_bytes()).number(item.created).number(item.expires).number(kind);
    }
    seal(key, body)
}

pub(crate) fn decode_open(key: &[u8], bytes: Bytes) -> Result<Vec<OpenItem>, Damage> {
    let mut reader = Reader::new(unseal(key, bytes)?, b'U', VERSION)?;
    let items = (0..reader.length()?).map(|_| open_item(&mut reader)).collect::<Result<_, Damage>>()?;
    reader.finish()?;
    Ok(items)
}

fn open_item(reader: &mut Reader) -> Result<OpenItem, Damage> {
    let id = RecordId::from_bytes(array(reader)?);
    let (created, expires) = (reader.number()?, reader.number()?);
    let kind = match reader.number()? {
        0 => OpenKind::Unsettled,
        1 => OpenKind::Released,
        2 => OpenKind::Unknown,
        _ => return Err(invalid("open how?")),
    };
    Ok(OpenItem { id, created, expires, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_back_under_their_own_key_only() {
        let id = RecordId::from_bytes([9; 32]);
        let due = [Due { id, expires: 0 }, Due { id, expires: u64::MAX }];
        let bytes = encode_due(b"key", &due).to_bytes();
        assert_eq!(decode_due(b"key", bytes.clone()).unwrap(), due);
        assert!(decode_due(b"other", bytes).is_err());

        let kinds = [OpenKind::Unsettled, OpenKind::Released, OpenKind::Unknown];
        let open = kinds.map(|kind| OpenItem { id, created: 7, expires: u64::MAX, kind });
        let bytes = encode_open(b"key", &open).to_bytes();
        assert_eq!(decode_open(b"key", bytes.clone()).unwrap(), open);
        assert!(decode_due(b"key", bytes).is_err());
    }
}
