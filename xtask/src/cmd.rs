//! A command that can be run, and printed so that a person can paste it.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use crate::failure::Failure;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cmd {
    program: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl Cmd {
    pub(crate) fn new(program: &str) -> Self {
        Self { program: program.to_owned(), args: Vec::new(), env: Vec::new() }
    }

    /// `cargo` with these words, split at spaces: `Cmd::cargo("fmt --check")`.
    pub(crate) fn cargo(words: &str) -> Self {
        Self::new("cargo").args(words.split_whitespace())
    }

    pub(crate) fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Shows itself, runs with this terminal's output, and fails if the command does.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let status = self.status()?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::failed(format!("`{self}` ended with {status}")))
    }

    /// As [`run`](Self::run), for callers that judge the exit status themselves.
    pub(crate) fn status(&self) -> Result<ExitStatus, Failure> {
        println!("   $ {self}");
        self.command().status().map_err(|error| self.did_not_start(&error))
    }

    /// Runs without a word and gives back what it printed.
    pub(crate) fn output(&self) -> Result<String, Failure> {
        let output = self.command().output().map_err(|error| self.did_not_start(&error))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::failed(format!("`{self}` ended with {}: {}", output.status, said.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Whether it starts and succeeds; a question, so nothing is printed.
    pub(crate) fn works(&self) -> bool {
        self.output().is_ok()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command.current_dir(root()).stdin(Stdio::null());
        // `cargo run` describes xtask itself in these. Build scripts that watch them would be run again each time one
        // changes between `cargo xtask test` and `cargo test`.
        let own = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
        for (name, _) in std::env::vars() {
            if own.iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command
    }

    fn did_not_start(&self, error: &std::io::Error) -> Failure {
        Failure::failed(format!("`{self}` did not start: {error}"))
    }
}

impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&self.program)?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

/// The repository. `cargo run` says at run time where the manifest is, so a checkout that was moved is still found.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    manifest.as_deref().and_then(|xtask| xtask.parent()).map_or_else(|| PathBuf::from("."), PathBuf::from)
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_command_can_be_pasted() {
        let doc = Cmd::cargo("doc --no-deps").env("RUSTDOCFLAGS", "-D warnings").args(["-E", "test(it's)"]);
        assert_eq!(doc.to_string(), r"RUSTDOCFLAGS='-D warnings' cargo doc --no-deps -E 'test(it'\''s)'");
    }

    #[test]
    fn a_failing_command_names_itself() {
        let Err(Failure::Failed(why)) = Cmd::new("no-such-program").output() else { panic!("it ran") };
        assert!(why.starts_with("`no-such-program` did not start"), "{why}");
    }
}
