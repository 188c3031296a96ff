//! The repository's own commands, run as `cargo xtask <command>`.
//!
//! ```text
//!  test ─┐                ┌─ tools, needs   what the machine must have
//!        ├─ steps of gate ┤
//!  check ┘                └─ workspace, features   which packages, which features
//!  bench ── programs that measure ─▶ target/bench/summary.json
//!  soak  ── the same tests with big counts ─▶ docs/evidence.md
//!  services ── the private servers that `test` starts for tests, left running
//! ```
//!
//! Exit codes: 0 fine, 1 something failed, 2 the command line is wrong.

mod bench;
mod check;
mod cmd;
mod evidence;
mod failure;
mod features;
mod gate;
mod needs;
mod services;
mod soak;
mod step;
mod summary;
mod test;
mod time;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

/// Builds, tests and measures this repository.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    after_help = "\
Start with:
  cargo xtask check     while you work
  cargo xtask test      before you push: what CI runs"
)]
enum Command {
    Test(test::Options),
    Check(check::Options),
    Bench(bench::Options),
    Soak(soak::Options),
    Services(services::Options),
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Test(options) => test::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Services(options) => services::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nerror: {failure}");
            failure.exit_code()
        }
    }
}
