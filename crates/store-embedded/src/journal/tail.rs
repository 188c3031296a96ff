//! What lies behind the last whole batch of a journal.

use std::io::{self, Read};

use crate::stored::{TAG_BYTES, Tag, Totals};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Nothing, or room that was made in advance.
    Empty,
    /// Something that is not a whole batch, and the highest number of a batch that is still to be seen in it.
    Torn(Option<u64>),
}

const CHUNK: usize = 1 << 20;
/// A mention is the tag, a length byte and the number.
const MENTION: usize = TAG_BYTES + 9;

pub(super) fn read(reader: &mut impl Read, tag: &Tag) -> io::Result<Tail> {
    let mut chunk = Vec::with_capacity(CHUNK + MENTION);
    let zeros = vec![0; CHUNK + MENTION];
    let mut tail = Tail::Empty;
    loop {
        let read = reader.take(CHUNK as u64).read_to_end(&mut chunk)?;
        if read == 0 {
            return Ok(tail);
        }
        // Compared as a whole: most of a fresh journal is such room.
        if chunk != zeros[..chunk.len()] {
            let earlier = match tail {
                Tail::Empty => None,
                Tail::Torn(highest) => highest,
            };
            tail = Tail::Torn(mentions(&chunk, tag).max().max(earlier));
        }
        // A mention may lie across two chunks.
        chunk.drain(..chunk.len().saturating_sub(MENTION - 1));
    }
}

fn mentions<'a>(bytes: &'a [u8], tag: &'a Tag) -> impl Iterator<Item = u64> + 'a {
    let starts = bytes.iter().enumerate().filter(move |(_, byte)| **byte == tag[0]).map(|(at, _)| at);
    starts.filter_map(move |at| {
        let rest = &bytes[at..];
        rest.starts_with(tag).then(|| Totals::torn_batch(rest)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_made_in_advance_is_empty() {
        assert_eq!(read(&mut &[0_u8; 3 * CHUNK][..], &[7; TAG_BYTES]).unwrap(), Tail::Empty);
        assert_eq!(read(&mut &[][..], &[7; TAG_BYTES]).unwrap(), Tail::Empty);
    }

    #[test]
    fn a_mention_is_found_wherever_it_lies() {
        let tag = *b"0123456789abcdef";
        let mention = Totals { batch: 42, ..Totals::default() }.encode(&tag).to_bytes();
        for at in [0, 1, CHUNK - 30, CHUNK - 20, CHUNK - 1, CHUNK, CHUNK + 5] {
            let mut bytes = vec![0; at];
            bytes.extend_from_slice(&mention);
            assert_eq!(read(&mut &bytes[..], &tag).unwrap(), Tail::Torn(Some(42)), "at {at}");
        }
        assert_eq!(read(&mut &b"rubbish"[..], &tag).unwrap(), Tail::Torn(None));
    }
}
