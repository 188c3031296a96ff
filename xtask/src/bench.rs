//! `cargo xtask bench`: runs the programs that measure, and gathers what they found.
//!
//! A program prints its table and writes its rows, a JSON array, to the file named by `ONLYONCE_BENCH_SUMMARY`
//! (`target/bench/summary.json` if there is none). Each starts without that file, so none has to know of the others.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cmd::{self, Cmd};
use crate::failure::Failure;
use crate::needs;
use crate::services::Services;
use crate::summary::{self, Row};

/// Packages with measurements of their own, in `benches/`.
const PACKAGES: &[&str] = &[
    "onlyonce-bench",
    "onlyonce-store-embedded",
    "onlyonce-store-redis",
    "onlyonce-server",
    "onlyonce-consumer",
];

/// A package whose measurements need databases; see `services`.
const ON_DATABASES: &str = "onlyonce-sql";

const REDIS: &str = "ONLYONCE_TEST_REDIS_URL";
const MYSQL: &str = "ONLYONCE_TEST_MYSQL_URL";
const POSTGRES: &str = "ONLYONCE_TEST_POSTGRES_URL";

/// Measures, prints each ratio beside its goal, and writes target/bench/summary.json.
///
/// A missed goal of a ratio is reported but is not a failure, because machines are noisy; a measurement that does not run is one,
/// and so is a count that grew.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask bench                     all rows, with the rounds that docs/benchmarks.md is made from
  cargo xtask bench --quick             fewer rounds: roughly where are we?
  cargo xtask bench --peers             other libraries too, at the same job in the same run
  cargo xtask bench --moment            does every one still start? The figures mean nothing
  cargo xtask bench --counts            instructions, allocations, round trips, syncs: what no neighbour disturbs
  cargo xtask bench --counts --record   the same, kept in bench/counts.json as what later ones are held against")]
pub(crate) struct Options {
    /// Measure the peers in bench/peers as well
    #[arg(long)]
    peers: bool,
    /// Fewer and shorter rounds
    #[arg(long, conflicts_with = "moment")]
    quick: bool,
    /// Start every one, the peers too, unoptimised and for a moment only
    #[arg(long, conflicts_with = "peers")]
    moment: bool,
    /// Count instead of timing, and fail where a count is more than 5 % above the recorded one
    #[arg(long, conflicts_with_all = ["peers", "quick", "moment"])]
    counts: bool,
    /// Record the counts of this run
    #[arg(long, requires = "counts")]
    record: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    needs::ensure(needs::BENCHES)?;
    match options {
        Options { counts: true, record, .. } => counts(*record),
        Options { moment: true, .. } => each_starts(),
        _ => times(options),
    }
}

/// Runs each for a moment, built as the tests are, and takes no notice of what it finds: a step of `cargo xtask test`.
pub(crate) fn each_starts() -> Result<(), Failure> {
    let services = Services::start_only(&[REDIS, MYSQL, POSTGRES])?;
    let all =
        Cmd::cargo("bench --profile dev --workspace --all-features --no-fail-fast --bench * -- --moment");
    let ours = services.tell(all).run();
    services.tell(peers().args(["--", "--moment"])).run()?;
    ours
}

/// Counts, and fails where a count grew: a step of `cargo xtask test`.
pub(crate) fn no_count_grew() -> Result<(), Failure> {
    counts(false)
}

fn counts(record: bool) -> Result<(), Failure> {
    // Both at once, so that they share what they are made of.
    let both = "--package onlyonce-bench --package onlyonce-server --bin counts --bin onlyonce";
    Cmd::cargo("build --profile counts").args(both.split(' ')).run()?;
    let services = Services::start_only(&[REDIS, MYSQL, POSTGRES])?;
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let program = Cmd::new(&format!("{target}/counts/counts")).args(record.then_some("--record"));
    services.tell(program).run()
}

fn times(options: &Options) -> Result<(), Failure> {
    let file = cmd::root().join("target/bench/summary.json");
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    let packages = PACKAGES.iter().map(|package| (bench(package), &[] as &[&str]));
    let on_servers = [(bench(ON_DATABASES), [MYSQL, POSTGRES].as_slice())];
    let peers = options.peers.then(|| (peers().args(["--release"]), [REDIS].as_slice()));
    for (program, servers) in packages.chain(on_servers).chain(peers) {
        let program = program.args(["--"]).args(options.quick.then_some("--quick"));
        println!("\n== {program}");
        match measure(&program, servers, &file) {
            Ok(found) => rows.extend(found),
            // The others are still worth measuring.
            Err(failure) => failures.push(failure.to_string()),
        }
    }
    write(&file, &rows)?;
    println!("\n{}", summary::verdict(&rows));
    if failures.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(failures.join("\n")))
}

/// The measurements of a package.
fn bench(package: &str) -> Cmd {
    Cmd::cargo("bench --all-features --package").args([package, "--bench", "*"])
}

/// Other libraries. One of them asks for a newer compiler than it needs.
fn peers() -> Cmd {
    Cmd::cargo("run --ignore-rust-version --manifest-path bench/peers/Cargo.toml")
}

/// On servers of its own, which end with the measurement.
fn measure(program: &Cmd, servers: &[&str], file: &Path) -> Result<Vec<Row>, Failure> {
    // Rows left by an earlier run must not pass for rows of this one.
    if file.exists() {
        std::fs::remove_file(file).map_err(|error| unusable(file, &error))?;
    }
    let services = Services::start_only(servers)?;
    services.tell(program.clone()).env("ONLYONCE_BENCH_SUMMARY", file.display().to_string()).run()?;
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
