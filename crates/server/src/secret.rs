//! Secrets in files: made when they are first needed, and readable by their owner only.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use crate::failure::Failure;
use crate::masked;

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
            let what = format!("{name} can't be written to {}; {elsewhere}", masked::file(file));
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

/// What is in the file. Others who can read it are warned about.
pub(crate) fn read(file: &Path, about: About) -> Result<String, Failure> {
    let text = fs::read_to_string(file)
        .map_err(|error| Failure::usage(masked::unreadable(about.name, file, &error)))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if fs::metadata(file).is_ok_and(|about| about.permissions().mode() & 0o077 != 0) {
            let shown = file.display();
            tracing::warn!("{shown} can be read by others than its owner: chmod 600 {shown}");
        }
    }
    Ok(text)
}

/// The one line of a text, without its end, as it can stand in a header: editors and `echo` put an end to it, and nothing else is
/// taken away, or two who read it could take it for two secrets.
pub(crate) fn line(text: &str) -> Result<&str, String> {
    let line = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
    if line.is_empty() {
        return Err("it is empty".into());
    }
    match line.chars().find(|letter| !letter.is_ascii_graphic()) {
        None => Ok(line),
        Some('\n' | '\r') => Err("it has several lines; write one line".into()),
        Some(letter) if letter.is_whitespace() => Err("it has white space in it; write it without".into()),
        Some(letter) if letter.is_control() => Err("it has a control character in it; write it anew".into()),
        Some(_) => Err("it has a character in it that is not ASCII, and no header may have".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_end_of_a_line_is_taken_away_and_nothing_else() {
        for text in ["secret", "secret\n", "secret\r\n"] {
            assert_eq!(line(text), Ok("secret"), "{text:?}");
        }
        for text in
            ["", "\n", "a\n\n", "a\nb", " a", "a ", "a\tb", "a\r", "a\0b", "\u{7f}", "caf\u{e9}", "a\u{85}"]
        {
            assert!(line(text).is_err(), "{text:?}");
        }
    }
}
