//! Why a command ended early, in words for the person at the terminal.

use std::fmt;
use std::process::ExitCode;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Something was done and failed.
    Failed(String),
    /// What was asked for makes no sense; nothing was done.
    Usage(String),
}

impl Failure {
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self::Failed(why.into())
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Failed(_) => ExitCode::from(1),
            Self::Usage(_) => ExitCode::from(2),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) | Self::Usage(why) => f.write_str(why),
        }
    }
}
