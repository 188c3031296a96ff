//! The bearer token of the admin API.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::failure::Failure;

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
        let token = match create(&file) {
            Ok(token) => token,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => read(&file)?,
            Err(error) => {
                let what = format!(
                    "the admin token can't be written to {}; name another place with --admin-token-file, or set ONLYONCE_ADMIN_TOKEN",
                    file.display()
                );
                return Err(Failure::because(&what, &error).into_usage());
            }
        };
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
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn create(file: &Path) -> std::io::Result<String> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut created = options.open(file)?;
    let token: String = rand::random::<[u8; 32]>().iter().map(|byte| format!("{byte:02x}")).collect();
    created.write_all(format!("{token}\n").as_bytes())?;
    created.sync_all()?;
    Ok(token)
}

fn read(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let text = fs::read_to_string(file).map_err(|error| {
        Failure::because(&format!("the admin token {shown} can't be read"), &error).into_usage()
    })?;
    let token = text.trim();
    if token.len() < 16 {
        return Err(Failure::usage(format!(
            "{shown} holds fewer than 16 characters, which can be guessed; delete it to have a new token made"
        )));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if fs::metadata(file).is_ok_and(|about| about.permissions().mode() & 0o077 != 0) {
            tracing::warn!("{shown} can be read by others than its owner: chmod 600 {shown}");
        }
    }
    Ok(token.to_owned())
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("file", &self.file).finish_non_exhaustive()
    }
}
