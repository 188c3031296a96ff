//! `cargo xtask soak`: the tests whose counts are bounded in `test`, with counts that deserve the name of evidence.

mod table;

use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;

use self::table::{SOAKS, Soak};
use crate::cmd::{self, Cmd};
use crate::evidence::{self, Run};
use crate::failure::Failure;
use crate::workspace::Workspace;
use crate::{time, tools};

/// Runs tests with big counts and records what was seen in docs/evidence.md.
///
/// A soak that fails is recorded as failed, the others still run, and the exit code is 1.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask soak                       every soak with its own count
  cargo xtask soak model                 one of them
  cargo xtask soak --minutes 60          about an hour in all: a short trial of each sets its count")]
pub(crate) struct Options {
    /// Which soaks to run [default: all]
    #[arg(value_parser = PossibleValuesParser::new(SOAKS.iter().map(|soak| soak.name)))]
    names: Vec<String>,
    /// About how long to take for all of them together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    minutes: Option<u32>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    tools::ensure()?;
    let workspace = Workspace::read()?;
    let chosen = |name: &str| options.names.is_empty() || options.names.iter().any(|one| one == name);
    let soaks: Vec<&Soak> = SOAKS.iter().filter(|soak| chosen(soak.name)).collect();
    let budget = options
        .minutes
        .map(|minutes| Duration::from_secs(60).mul_f64(f64::from(minutes) / soaks.len() as f64));
    // Taken once: recording the first soak must not make the tree look changed for the second.
    let revision = revision();
    let mut failures = Vec::new();
    for soak in soaks {
        println!("\n== {}: {}", soak.name, soak.title);
        let done = if workspace.has(soak.package) {
            run_and_record(soak, budget, &revision)
        } else {
            Err(Failure::failed(format!("did not run: there is no package {}", soak.package)))
        };
        match done {
            Ok(said) => println!("== {}: {said}", soak.name),
            // The others are still worth running.
            Err(why) => failures.push(format!("{}: {why}", soak.name)),
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(failures.join("\n")))
}

fn run_and_record(soak: &Soak, budget: Option<Duration>, revision: &str) -> Result<String, Failure> {
    let outcome = soak.run(budget)?;
    let count = format!("{}={}", soak.variable, outcome.count);
    let took = time::show(outcome.took);
    let said = format!("after {took} with {count}, recorded in docs/evidence.md");
    record(soak, &Run { date: now()?, revision: revision.to_owned(), count, took, passed: outcome.passed })?;
    if outcome.passed { Ok(format!("passed {said}")) } else { Err(Failure::failed(format!("FAILED {said}"))) }
}

fn record(soak: &Soak, run: &Run) -> Result<(), Failure> {
    let unusable = |error: std::io::Error| Failure::failed(format!("docs/evidence.md: {error}"));
    let docs = cmd::root().join("docs");
    let file = docs.join("evidence.md");
    let document = match std::fs::read_to_string(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.map_err(unusable)?,
    };
    let Soak { name, title, package, filter, .. } = soak;
    let about = format!("`{filter}` of `{package}`; again with `cargo xtask soak {name}`.");
    std::fs::create_dir_all(docs).map_err(unusable)?;
    std::fs::write(&file, evidence::record(&document, title, &about, run)).map_err(unusable)
}

fn now() -> Result<String, Failure> {
    Cmd::new("date").args(["-u", "+%Y-%m-%d %H:%M"]).output()
}

/// The commit, with a `+` if there is more than the commit.
fn revision() -> String {
    let git = |words: &str| Cmd::new("git").args(words.split(' ')).output();
    let Ok(commit) = git("rev-parse --short HEAD") else { return "not in git".to_owned() };
    let clean = git("status --porcelain -- . :!docs/evidence.md").is_ok_and(|changes| changes.is_empty());
    if clean { commit } else { format!("{commit}+") }
}
