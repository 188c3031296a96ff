//! Checks the tables of contents of the engine's tables before the engine reads them.
//!
//! The engine makes room for as many entries as a table of contents claims to have, before it compares the checksum: with
//! the wrong bit changed that is more memory than there is, and the process would be aborted without a word.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use crate::engine::Engine;

const TRAILER_MAGIC: &[u8] = b"SFA!";
const CONTENTS_MAGIC: &[u8] = b"TOC!";
/// Magic, version, kind of checksum, checksum, position and length of the table of contents.
const TRAILER: usize = 4 + 1 + 1 + 16 + 8 + 8;
/// A table has a handful of sections; what seems to be longer does not begin there, which the engine notices itself.
const LONGEST_CONTENTS: u64 = 1 << 20;

/// What is wrong with the tables, if anything is.
pub(crate) fn check(engine: &Path) -> io::Result<Result<(), String>> {
    for tree in ["0", "1"] {
        let tables = Engine::tables(engine).join(tree).join("tables");
        let entries = match fs::read_dir(&tables) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.is_file() && !is_whole(&mut File::open(&path)?)? {
                return Ok(Err(format!("{} is not as it was written", path.display())));
            }
        }
    }
    Ok(Ok(()))
}

/// Whether the engine may read it. A file without a trailer was never finished: no manifest names it, and it is removed.
fn is_whole(file: &mut (impl Read + Seek)) -> io::Result<bool> {
    let length = file.seek(SeekFrom::End(0))?;
    let Some(contents_end) = length.checked_sub(TRAILER as u64) else { return Ok(true) };
    let mut trailer = [0; TRAILER];
    file.seek(SeekFrom::Start(contents_end))?;
    file.read_exact(&mut trailer)?;
    let (magic, rest) = trailer.split_at(4);
    if magic != TRAILER_MAGIC {
        return Ok(true);
    }
    let mut checksum = [0; 16];
    checksum.copy_from_slice(&rest[2..18]);
    let mut position = [0; 8];
    position.copy_from_slice(&rest[18..26]);
    let position = u64::from_le_bytes(position);
    let Some(contents) = contents_end.checked_sub(position).filter(|length| *length <= LONGEST_CONTENTS)
    else {
        return Ok(true);
    };
    let mut bytes = vec![0; usize::try_from(contents).unwrap_or(0)];
    file.seek(SeekFrom::Start(position))?;
    file.read_exact(&mut bytes)?;
    // What does not even begin like one, the engine notices itself.
    Ok(!bytes.starts_with(CONTENTS_MAGIC) || xxh3_128(&bytes) == u128::from_le_bytes(checksum))
}
