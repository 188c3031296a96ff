//! What can be typed. Exit codes: 0, 1 failed, 2 usage.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::id::IdCommand;

/// State-changing calls happen at most once, and every retry gets the same answer.
#[derive(Debug, Parser)]
#[command(
    name = "onlyonce",
    version,
    after_help = "Examples:\n  onlyonce demo                            a payments page to play with, on http://127.0.0.1:8080\n  onlyonce demo --listen 127.0.0.1:9000    on another port\n  onlyonce demo --help                     all options"
)]
pub(crate) struct Cli {
    /// How log lines are written.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Human)]
    pub(crate) log: LogFormat,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Human,
    /// For machines: one JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A payments service behind the layer, on the embedded store, with a page to play with.
    Demo(DemoArguments),
    /// Makes and explains ids.
    #[command(subcommand)]
    Id(IdCommand),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  onlyonce demo\n  onlyonce demo --listen 127.0.0.1:0       any free port; the address is printed\n  onlyonce demo --data /tmp/play           another place for the records\n\nThe records survive a restart, also a kill -9: retry an old key and see its answer again."
)]
pub(crate) struct DemoArguments {
    /// Where to listen.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,

    /// Where records and charges are kept; made if it is not there.
    #[arg(long, value_name = "DIR", default_value = "onlyonce-data")]
    pub(crate) data: PathBuf,
}
