//! What is said about words on the command line that have no place there. A word that stands alone may be a secret whose flag was
//! forgotten, and a URL may hold one: neither is repeated.

use std::io::ErrorKind as IoError;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::masked;
use crate::say;

/// Says it, and with which code the process ends. Help and the version come this way too.
pub(crate) fn tell(error: clap::Error) -> ExitCode {
    let code = u8::try_from(error.exit_code()).unwrap_or(2);
    match without_secrets(error).print() {
        Err(unwritten) if code == 0 && unwritten.kind() != IoError::BrokenPipe => {
            say::complain(&format!("onlyonce: {}", say::unwritten(&unwritten)));
            say::finish();
            ExitCode::from(1)
        }
        _ => ExitCode::from(code),
    }
}

fn without_secrets(mut error: clap::Error) -> clap::Error {
    let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    let hide: fn(&str) -> bool = match error.kind() {
        ErrorKind::UnknownArgument => |text| !text.starts_with('-'),
        ErrorKind::InvalidSubcommand => |_| true,
        _ => |text| text.contains(['@', '/']),
    };
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidSubcommand, ContextKind::InvalidValue] {
        let Some(ContextValue::String(text)) = error.get(kind) else { continue };
        // A slip in the name of a command is worth showing.
        let is_name = error.kind() == ErrorKind::InvalidSubcommand && is_word(text);
        if hide(text) && !is_name {
            error.insert(kind, ContextValue::String(masked::NOTHING.into()));
            // They repeat it.
            error.remove(ContextKind::Suggested);
        }
    }
    error
}
