//! `cargo xtask bench`: runs the programs that measure, and gathers what they found.
//!
//! A program prints its table and writes its rows, a JSON array, to the file named by `ONLYONCE_BENCH_SUMMARY`
//! (`target/bench/summary.json` if there is none). Each starts without that file, so none has to know of the others.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cmd::{self, Cmd};
use crate::failure::Failure;
use crate::services::Services;
use crate::summary::{self, Row};
use crate::workspace::Workspace;

/// Packages with measurements of their own, in `benches/`.
const PACKAGES: &[&str] =
    &["onlyonce-store-embedded", "onlyonce-store-redis", "onlyonce-server", "onlyonce-consumer"];

/// A package whose measurements need databases; see `services`.
const ON_DATABASES: &str = "onlyonce-sql";

/// Measures, prints each ratio beside its goal, and writes target/bench/summary.json.
///
/// A missed goal is reported but is not a failure, because machines are noisy; a measurement that does not run is one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask bench           all rows, with the rounds that docs/benchmarks.md is made from
  cargo xtask bench --quick   fewer rounds: does it still run, and roughly where are we?
  cargo xtask bench --peers   other libraries too, at the same job in the same run")]
pub(crate) struct Options {
    /// Measure the peers in bench/peers as well
    #[arg(long)]
    peers: bool,
    /// Fewer and shorter rounds
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let file = cmd::root().join("target/bench/summary.json");
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    for program in programs(options, &Workspace::read()?) {
        println!("\n== {program}");
        match measure(&program, &file) {
            Ok(found) => rows.extend(found),
            // The others are still worth measuring.
            Err(failure) => failures.push(failure.to_string()),
        }
    }
    for measured in [Some(on_databases(options, &file)), options.peers.then(|| peers(options, &file))] {
        match measured {
            Some(Ok(found)) => rows.extend(found),
            Some(Err(failure)) => failures.push(failure.to_string()),
            None => {}
        }
    }
    write(&file, &rows)?;
    println!("\n{}", summary::verdict(&rows));
    if failures.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(failures.join("\n")))
}

fn programs(options: &Options, workspace: &Workspace) -> Vec<Cmd> {
    let mut programs = vec![Cmd::cargo("run --release --package onlyonce-bench --")];
    for package in PACKAGES.iter().filter(|package| workspace.has_benches(package)) {
        programs.push(Cmd::cargo("bench --all-features --package").args([*package, "--bench", "*", "--"]));
    }
    let quick = options.quick.then_some("--quick");
    programs.into_iter().map(|program| program.args(quick)).collect()
}

/// On databases of their own, which end with the measurement.
fn on_databases(options: &Options, file: &Path) -> Result<Vec<Row>, Failure> {
    let program = Cmd::cargo("bench --all-features --package").args([ON_DATABASES, "--bench", "sql", "--"]);
    println!("\n== {program}");
    let services = Services::start_only(&["ONLYONCE_TEST_MYSQL_URL", "ONLYONCE_TEST_POSTGRES_URL"])?;
    measure(&services.tell(program.args(options.quick.then_some("--quick"))), file)
}

/// Other libraries, on a Redis of their own. One of them asks for a newer compiler than it needs.
fn peers(options: &Options, file: &Path) -> Result<Vec<Row>, Failure> {
    let program = Cmd::cargo("run --release --ignore-rust-version --manifest-path bench/peers/Cargo.toml --");
    println!("\n== {program}");
    let services = Services::start_only(&["ONLYONCE_TEST_REDIS_URL"])?;
    measure(&services.tell(program.args(options.quick.then_some("--quick"))), file)
}

fn measure(program: &Cmd, file: &Path) -> Result<Vec<Row>, Failure> {
    // Rows left by an earlier run must not pass for rows of this one.
    if file.exists() {
        std::fs::remove_file(file).map_err(|error| unusable(file, &error))?;
    }
    program.clone().env("ONLYONCE_BENCH_SUMMARY", file.display().to_string()).run()?;
    let text = std::fs::read_to_string(file).map_err(|error| unusable(file, &error))?;
    summary::parse(&text).map_err(|error| unusable(file, &error))
}

fn write(file: &Path, rows: &[Row]) -> Result<(), Failure> {
    let folder = file.parent().map(PathBuf::from).unwrap_or_default();
    std::fs::create_dir_all(&folder).map_err(|error| unusable(&folder, &error))?;
    let text = summary::text(rows).map_err(|error| unusable(file, &error))?;
    std::fs::write(file, text).map_err(|error| unusable(file, &error))
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!("{}: {error}", path.display()))
}
