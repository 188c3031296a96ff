//! The binary `onlyonce`. `cargo run --release -- demo` shows what the project does.

mod cli;
mod demo;
mod failure;
mod id;
mod log;
mod shutdown;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    log::start(cli.log);
    let done = match cli.command {
        Command::Demo(arguments) => demo::run(arguments).await,
        Command::Id(command) => id::run(command).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("onlyonce: {failure}");
            ExitCode::FAILURE
        }
    }
}
