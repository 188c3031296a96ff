//! The bearer token of the admin API.

use std::fmt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::secret::{self, About};

const ABOUT: About = About {
    name: "the admin token",
    elsewhere: "name another place with --admin-token-file, or set ONLYONCE_ADMIN_TOKEN",
};

/// A token, kept as its digest: comparing digests takes the same time whatever was guessed.
pub(super) struct Token {
    digest: Option<[u8; 32]>,
    file: Option<PathBuf>,
}

impl Token {
    /// Nobody gets in.
    pub(super) fn nobody() -> Self {
        Self { digest: None, file: None }
    }

    pub(super) fn given(token: &str) -> Self {
        Self { digest: Some(digest(token)), file: None }
    }

    /// The token in this file, which is made, readable by its owner only, if it is not there.
    pub(super) fn in_file(file: PathBuf) -> Result<Self, Failure> {
        let token = secret::in_file(&file, ABOUT, str::to_owned)?;
        if token.len() < 16 {
            return Err(Failure::usage(format!(
                "{} holds fewer than 16 characters, which can be guessed; delete it to have a new token made",
                file.display()
            )));
        }
        Ok(Self { digest: Some(digest(&token)), file: Some(file) })
    }

    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    pub(super) fn is(&self, given: &str) -> bool {
        let Some(known) = &self.digest else { return false };
        let different = known.iter().zip(digest(given)).fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(different) == 0
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("file", &self.file).finish_non_exhaustive()
    }
}
