//! `cargo xtask test`: everything that must hold before code is pushed.

use clap::Args;

use crate::failure::Failure;
use crate::workspace::Workspace;
use crate::{gate, step};

/// The one test command: tools, format, clippy, rustdoc, each feature alone, tests, doc tests, benchmarks for a moment, counts.
///
/// Installs what is missing, stops at the first step that fails, and says how to run just that step again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask test                    all of it: what CI runs
  cargo xtask test --only core,http   the same steps for two packages
  cargo xtask test --only redis       `onlyonce-` and `store-` may be left out")]
pub(crate) struct Options {
    /// Only these packages
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let workspace = Workspace::read()?;
    let chosen = workspace.choose(&options.only)?;
    step::run(&[
        gate::tools(),
        gate::format(&chosen),
        gate::clippy(&chosen),
        gate::rustdoc(&chosen),
        gate::each_feature_alone(&chosen),
        gate::tests(&chosen),
        gate::doc_tests(&chosen),
        gate::benches(&chosen),
        gate::counts(&chosen),
    ])
}
