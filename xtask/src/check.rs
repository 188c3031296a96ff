//! `cargo xtask check`: the part of `test` that answers while one still remembers what was changed.

use clap::Args;

use crate::failure::Failure;
use crate::workspace::Workspace;
use crate::{gate, step};

/// The packages whose tests need no server and no disk.
const FAST: &[&str] = &["core", "http", "testkit"];

/// The fast subset: format, clippy, and the tests of core, http and testkit.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask check                format and clippy of everything, the fast tests
  cargo xtask check --only macros  format, clippy and tests of one package")]
pub(crate) struct Options {
    /// Only these packages
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let workspace = Workspace::read()?;
    let linted = workspace.choose(&options.only)?;
    let tested = if linted.is_whole() { workspace.choose(FAST)? } else { workspace.choose(&options.only)? };
    step::run(&[gate::tools(), gate::format(&linted), gate::clippy(&linted), gate::tests(&tested)])
}
