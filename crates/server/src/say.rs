//! Words for people and programs: on standard output what was asked for, on standard error what went wrong. Whoever reads may have
//! gone, which is no reason to end: nothing here panics or fails.

use std::io::{self, Write};
use std::sync::OnceLock;

use crate::cli::LogFormat;

static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Prints a line to standard output.
macro_rules! say {
    ($($line:tt)*) => { crate::say::line(format_args!($($line)*)) };
}
pub(crate) use say;

pub(crate) fn line(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Prints text as it is.
pub(crate) fn text(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints beside what was asked for, to standard error.
pub(crate) fn aside(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Says from now on what went wrong in this form.
pub(crate) fn speak(format: LogFormat) {
    let _ = FORMAT.set(format);
}

/// Says what went wrong: a sentence, or a log line where only those are expected.
pub(crate) fn complain(what: &str) {
    match FORMAT.get() {
        Some(LogFormat::Json) => tracing::error!("{what}"),
        _ => drop(writeln!(io::stderr(), "{what}")),
    }
}

/// Standard error for log lines, which are lost when nobody reads them.
#[derive(Debug)]
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().flush();
        Ok(())
    }
}
