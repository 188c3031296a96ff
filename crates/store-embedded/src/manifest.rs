//! Checks the engine's manifests before the engine reads them.
//!
//! A manifest names the tables of a tree. The engine stores its checksum and never compares it: with one bit changed it
//! would open with fewer tables, silently, and delete the files of the others as leftovers.

use std::fs;
use std::io;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use crate::engine::Engine;

/// Names the manifest that counts: its number, its checksum, and the kind of checksum.
const CURRENT: &str = "current";
const CURRENT_BYTES: usize = 8 + 16 + 1;

/// What is wrong with the manifests, if anything is.
pub(crate) fn check(engine: &Path) -> io::Result<Result<(), String>> {
    // The engine's own tree, and the records.
    for tree in ["0", "1"] {
        let tree = Engine::tables(engine).join(tree);
        let current = fs::read(tree.join(CURRENT))?;
        let Some((number, checksum)) = parse(&current) else {
            return Ok(Err(format!("{} can't be read", tree.join(CURRENT).display())));
        };
        let manifest = tree.join(format!("v{number}"));
        let is_whole = match fs::read(&manifest) {
            Ok(bytes) => xxh3_128(&bytes) == checksum,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => false,
            Err(cause) => return Err(cause),
        };
        if !is_whole {
            return Ok(Err(format!("{} is not as it was written", manifest.display())));
        }
    }
    Ok(Ok(()))
}

fn parse(current: &[u8]) -> Option<(u64, u128)> {
    let current = <&[u8; CURRENT_BYTES]>::try_from(current).ok()?;
    let (number, rest) = current.split_first_chunk::<8>()?;
    let (checksum, kind) = rest.split_first_chunk::<16>()?;
    (kind == [0]).then(|| (u64::from_le_bytes(*number), u128::from_le_bytes(*checksum)))
}
