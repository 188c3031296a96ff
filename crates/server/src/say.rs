//! Words for people and programs: on standard output what was asked for, on standard error what went wrong. Whoever reads may have
//! gone, which is no reason to end: nothing here panics or fails, and what could not be written is told at the end ([`written`]). Nor is
//! one that does not read a reason to stop: what a server says goes through a queue ([`Lines`]), and is lost if nobody takes it.

use std::io::{self, Write};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use crate::cli::LogFormat;
use crate::failure::Failure;
use crate::lines::Lines;

static FORMAT: OnceLock<LogFormat> = OnceLock::new();
/// The first reason why what was asked for could not be written.
static UNWRITTEN: OnceLock<io::Error> = OnceLock::new();
static OUT: LazyLock<Lines> = LazyLock::new(|| Lines::to(&io::stdout(), |_| String::new()));
static ERR: LazyLock<Lines> = LazyLock::new(|| Lines::to(&io::stderr(), lost));

/// How long the end waits for a reader.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a greeting waits for what is said before it.
const MOMENT: Duration = Duration::from_millis(200);

/// Prints a line to standard output.
macro_rules! say {
    ($($line:tt)*) => { crate::say::line(format_args!($($line)*)) };
}
pub(crate) use say;

/// The same for servers, which wait for nobody.
macro_rules! announce {
    ($($line:tt)*) => { crate::say::announcement(format_args!($($line)*)) };
}
pub(crate) use announce;

pub(crate) fn line(line: std::fmt::Arguments<'_>) {
    note(writeln!(io::stdout(), "{line}"));
}

pub(crate) fn announcement(line: std::fmt::Arguments<'_>) {
    OUT.say(format!("{line}\n").as_bytes());
}

/// Prints text as it is.
pub(crate) fn text(text: &str) {
    let mut out = io::stdout().lock();
    note(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

fn note(written: io::Result<()>) {
    // Whoever reads has read enough, as `head` does.
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = UNWRITTEN.set(error);
    }
}

/// Whether all that was asked for could be written: a program that reads a file of it must not take a part for the whole.
pub(crate) fn written() -> Result<(), Failure> {
    note(io::stdout().flush());
    UNWRITTEN.get().map_or(Ok(()), |error| Err(Failure::new(unwritten(error))))
}

pub(crate) fn unwritten(error: &io::Error) -> String {
    format!("the output could not be written: {error}")
}

/// Prints beside what was asked for, to standard error.
pub(crate) fn aside(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Says from now on what went wrong in this form.
pub(crate) fn speak(format: LogFormat) {
    let _ = FORMAT.set(format);
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("?").to_owned();
        let trace = std::backtrace::Backtrace::capture();
        let trace = match trace.status() {
            std::backtrace::BacktraceStatus::Captured => format!("\n{trace}"),
            _ => String::new(),
        };
        ERR.say(format!("thread '{name}' {panic}{trace}\n").as_bytes());
        // It is the last word of the process.
        if name == "main" {
            finish();
        }
    }));
}

/// Says what went wrong: a sentence, or a log line where only those are expected.
pub(crate) fn complain(what: &str) {
    match FORMAT.get() {
        Some(LogFormat::Json) => tracing::error!("{what}"),
        _ => ERR.say_patiently(format!("{what}\n").as_bytes(), PATIENCE),
    }
}

/// What is said when lines were lost, in the form of the others.
fn lost(count: usize) -> String {
    let what = format!("{count} lines of the log were lost, because nobody read it");
    match FORMAT.get() {
        Some(LogFormat::Json) => {
            let line =
                serde_json::json!({ "level": "WARN", "fields": { "message": what }, "target": "onlyonce" });
            format!("{line}\n")
        }
        _ => format!("WARN {what}\n"),
    }
}

/// Waits a moment for the log to be written.
pub(crate) fn catch_up() {
    if let Some(log) = LazyLock::get(&ERR) {
        log.finish(MOMENT);
    }
}

/// Waits for what was said to be written, but not for ever.
pub(crate) fn finish() {
    for lines in [&OUT, &ERR] {
        // What nobody has used has nothing to write.
        if let Some(lines) = LazyLock::get(lines) {
            lines.finish(PATIENCE);
        }
    }
}

/// Standard error for log lines, which are lost when nobody reads them.
#[derive(Debug)]
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        ERR.say(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
