//! Log lines, on standard error: standard output is for what was asked for.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;
use crate::say;

/// Starts logging. `RUST_LOG` chooses what is logged.
pub(crate) fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    say::speak(format);
    // A reader that has gone or hangs must not cost an answer: the usual writer waits, and panics when it can't say that it can't write.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| say::Log).log_internal_errors(false);
    match format {
        LogFormat::Human => builder.with_target(false).with_ansi(stderr().is_terminal()).init(),
        LogFormat::Json => builder.json().init(),
    }
}
