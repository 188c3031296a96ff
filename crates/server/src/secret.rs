//! Secrets in files: made when they are first needed, and readable by their owner only.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use crate::failure::Failure;

/// How a secret is called, and where else it may be given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About {
    pub(crate) name: &'static str,
    pub(crate) elsewhere: &'static str,
}

/// What is in the file, which is made with what `make` returns if it is not there.
pub(crate) fn in_file(
    file: &Path,
    about: About,
    make: impl FnOnce(&str) -> String,
) -> Result<String, Failure> {
    let About { name, elsewhere } = about;
    match create(file, make) {
        Ok(secret) => Ok(secret),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => read(file, about),
        Err(error) => {
            let what = format!("{name} can't be written to {}; {elsewhere}", file.display());
            Err(Failure::because(&what, &error).into_usage())
        }
    }
}

fn create(file: &Path, make: impl FnOnce(&str) -> String) -> std::io::Result<String> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut created = options.open(file)?;
    let random: String = rand::random::<[u8; 32]>().iter().map(|byte| format!("{byte:02x}")).collect();
    let secret = make(&random);
    created.write_all(format!("{secret}\n").as_bytes())?;
    created.sync_all()?;
    Ok(secret)
}

/// What is in the file, without the space around it. Others who can read it are warned about.
pub(crate) fn read(file: &Path, about: About) -> Result<String, Failure> {
    let shown = file.display();
    let text = fs::read_to_string(file).map_err(|error| {
        Failure::because(&format!("{} {shown} can't be read", about.name), &error).into_usage()
    })?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if fs::metadata(file).is_ok_and(|about| about.permissions().mode() & 0o077 != 0) {
            tracing::warn!("{shown} can be read by others than its owner: chmod 600 {shown}");
        }
    }
    Ok(text.trim().to_owned())
}
