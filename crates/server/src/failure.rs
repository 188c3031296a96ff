//! Why the program could not do what it was asked to, in a sentence that says what to do next.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    code: u8,
}

impl Failure {
    /// It was asked for rightly and went wrong: exit code 1.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { text: what.into(), code: 1 }
    }

    /// It was asked for wrongly: exit code 2.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { text: what.into(), code: 2 }
    }

    /// An error with all its causes, each once.
    pub(crate) fn because(what: &str, error: &dyn Error) -> Self {
        let mut text = format!("{what}: {error}");
        let mut cause = error.source();
        while let Some(error) = cause {
            let said = error.to_string();
            if !text.contains(&said) {
                text.push_str(": ");
                text.push_str(&said);
            }
            cause = error.source();
        }
        Self::new(text)
    }

    pub(crate) fn into_usage(self) -> Self {
        Self { code: 2, ..self }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
