//! The bearer token of the admin API.

use std::fmt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::masked;
use crate::secret::{self, About};

const ABOUT: About = About {
    name: "the admin token",
    elsewhere: "name another place with --admin-token-file, or set ONLYONCE_ADMIN_TOKEN",
};

/// The shortest token that can't be guessed.
const SHORTEST: usize = 16;

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
        let text = secret::in_file(&file, ABOUT, str::to_owned)?;
        let token = check(&text).map_err(|why| wrong_in(&file, &why))?;
        Ok(Self { digest: Some(digest(token)), file: Some(file) })
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

/// The token as it is sent, or why nobody could use it.
pub(crate) fn check(text: &str) -> Result<&str, String> {
    match secret::line(text)? {
        token if token.len() < SHORTEST => {
            Err(format!("it has fewer than {SHORTEST} characters and can be guessed"))
        }
        token => Ok(token),
    }
}

/// What is wrong with the token that is in a file, before a gateway starts; one that is not there is made at the start.
pub(crate) fn check_file(file: &Path) -> Result<(), Failure> {
    if !file.exists() {
        return Ok(());
    }
    check(&secret::read(file, ABOUT)?).map(drop).map_err(|why| wrong_in(file, &why))
}

fn wrong_in(file: &Path, why: &str) -> Failure {
    let shown = masked::file(file);
    Failure::usage(format!(
        "the admin token in {shown} can't be used: {why}; or delete the file to have a new token made"
    ))
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("file", &self.file).finish_non_exhaustive()
    }
}
