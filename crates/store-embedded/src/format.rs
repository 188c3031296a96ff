//! The file that says what a directory is: text, so that a person can read it too.

use std::fmt;
use std::path::Path;

use crate::open_error::OpenError;
use crate::stored::{self, Tag};

/// Raised whenever an older release could misread the files.
const VERSION: u32 = 1;
const TITLE: &str = "onlyonce embedded store";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) tag: Tag,
}

impl Format {
    pub(crate) fn new() -> Self {
        Self { tag: rand::random() }
    }

    pub(crate) fn parse(path: &Path, text: &[u8]) -> Result<Self, OpenError> {
        let unreadable = || OpenError::damaged(path, "the file `format` can't be read");
        let text = str::from_utf8(text).map_err(|_| unreadable())?;
        let mut lines = text.lines();
        if lines.next() != Some(TITLE) {
            return Err(unreadable());
        }
        // The version comes first and alone decides: a newer format may have other lines.
        let found = lines.next().and_then(|line| line.strip_prefix("format ")?.parse::<u32>().ok());
        match found {
            Some(VERSION) => {}
            Some(found) => return Err(OpenError::Newer { path: path.to_owned(), found, known: VERSION }),
            None => return Err(unreadable()),
        }
        let tag = lines.next().and_then(|line| u128::from_str_radix(line.strip_prefix("tag ")?, 16).ok());
        let format = Self { tag: tag.ok_or_else(unreadable)?.to_be_bytes() };
        if format.to_string() != text {
            return Err(unreadable());
        }
        Ok(format)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = format!("{TITLE}\nformat {VERSION}\ntag {:032x}\n", u128::from_be_bytes(self.tag));
        let check = u64::from_be_bytes(stored::checksum(b"format", head.as_bytes()));
        writeln!(f, "{head}check {check:016x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_refused() {
        let path = Path::new("data");
        let format = Format::new();
        let text = format.to_string().into_bytes();
        assert_eq!(Format::parse(path, &text).unwrap(), format);
        for bit in 0..text.len() * 8 {
            let mut damaged = text.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Format::parse(path, &damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_newer_format_is_named_even_if_the_rest_is_strange() {
        let newer = format!("{TITLE}\nformat 7\nsomething new\n");
        let refused = Format::parse(Path::new("data"), newer.as_bytes()).unwrap_err();
        assert!(matches!(refused, OpenError::Newer { found: 7, known: 1, .. }), "{refused}");
    }
}
