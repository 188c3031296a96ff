//! Log lines, on standard error: standard output is for what was asked for.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;
use crate::{say, variable};

/// Starts logging. `RUST_LOG` chooses what is logged.
pub(crate) fn start(format: LogFormat) {
    let wanted = variable::find("RUST_LOG").and_then(|text| {
        let filter = text.map(|text| EnvFilter::try_new(text).map_err(|error| format!("RUST_LOG: {error}")));
        filter.transpose()
    });
    let (filter, wrong) = match wanted {
        Ok(filter) => (filter, None),
        Err(why) => (None, Some(why)),
    };
    let filter = filter.unwrap_or_else(|| EnvFilter::new("info"));
    say::speak(format);
    // A reader that has gone or hangs must not cost an answer: the usual writer waits, and panics when it can't say that it can't write.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| say::Log).log_internal_errors(false);
    match format {
        LogFormat::Human => builder.with_target(false).with_ansi(stderr().is_terminal()).init(),
        LogFormat::Json => builder.json().init(),
    }
    if let Some(why) = wrong {
        tracing::warn!("{why}; it does not count, and info is logged; write for instance RUST_LOG=debug");
    }
}
