//! The binary `onlyonce`. `cargo run --release -- demo` shows what the project does.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic when nobody reads; `say` does not")]

mod admin;
mod cli;
mod config;
mod demo;
mod failure;
mod gateway;
mod id;
mod lines;
mod log;
mod masked;
mod mistyped;
mod records;
mod say;
mod secret;
mod shutdown;
mod stores;
mod variable;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command};

#[tokio::main]
async fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return mistyped::tell(error),
    };
    log::start(cli.log);
    let done = match cli.command {
        Command::Gateway(arguments) => gateway::run(arguments).await,
        Command::Records(arguments) => records::run(*arguments).await,
        Command::Demo(arguments) => demo::run(arguments).await,
        Command::Id(command) => id::run(command).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "onlyonce", &mut script);
            say::text(&String::from_utf8_lossy(&script));
            Ok(())
        }
    };
    let code = match done.and_then(|()| say::written()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say::complain(&format!("onlyonce: {failure}"));
            failure.exit_code()
        }
    };
    say::finish();
    code
}
