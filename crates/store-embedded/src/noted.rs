//! The side file with the number of the last batch that was acknowledged.
//!
//! It is written after the batch was synced and before its callers are answered, and is not synced itself: it survives the
//! death of the process at once, and the death of the machine a little later. A journal that ends before it has lost
//! something, whatever the journal itself looks like.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

use crate::stored::{self, Tag};

#[derive(Debug)]
pub(crate) struct Noted {
    file: File,
    tag: Tag,
}

impl Noted {
    /// Opens the note, and reads it. A note that can't be read guards nothing, but nothing is lost with it.
    pub(crate) fn open(path: &Path, tag: &Tag) -> io::Result<(Self, u64)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = Vec::new();
        (&mut file).take(17).read_to_end(&mut bytes)?;
        let noted = match read(tag, &bytes) {
            Some(number) => number,
            None if bytes.iter().all(|byte| *byte == 0) => 0,
            None => {
                tracing::warn!(note = %path.display(), "the note of the last batch can't be read and is not used");
                0
            }
        };
        Ok((Self { file, tag: *tag }, noted))
    }

    pub(crate) fn write(&mut self, number: u64) -> io::Result<()> {
        let number = number.to_le_bytes();
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number);
        bytes[8..].copy_from_slice(&stored::checksum(&self.tag, &number));
        write_at_start(&mut self.file, &bytes)
    }
}

#[cfg(unix)]
fn write_at_start(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, 0)
}

#[cfg(not(unix))]
fn write_at_start(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    use std::io::{Seek, SeekFrom, Write};
    file.seek(SeekFrom::Start(0))?;
    file.write_all(bytes)
}

fn read(tag: &Tag, bytes: &[u8]) -> Option<u64> {
    let bytes = <&[u8; 16]>::try_from(bytes).ok()?;
    let (number, checksum) = bytes.split_at(8);
    let is_whole = checksum == stored::checksum(tag, number);
    is_whole.then(|| u64::from_le_bytes(number.try_into().unwrap_or_default()))
}
