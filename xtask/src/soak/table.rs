//! The soaks there are, and how one is run.

use std::time::Duration;

use crate::cmd::Cmd;
use crate::failure::Failure;
use crate::services::{self, Services};
use crate::time::Stopwatch;

/// A test, and the variable that tells it how much to do.
#[derive(Debug)]
pub(super) struct Soak {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) package: &'static str,
    pub(super) filter: &'static str,
    pub(super) variable: &'static str,
    count: u32,
    kind: Kind,
}

/// What a soak needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It shows that something holds.
    Shows,
    /// It times something, in this file of tests: built as it is shipped, one test after the other, on servers with room.
    Times(&'static str),
}

pub(super) const SOAKS: &[Soak] = &[
    Soak {
        name: "model",
        title: "The memory store equals the reference model",
        package: "onlyonce-testkit",
        filter: "binary(memory_equals_model)",
        variable: "PROPTEST_CASES",
        count: 100_000,
        kind: Kind::Shows,
    },
    Soak {
        name: "storm",
        title: "One effect a key under a storm of faults",
        package: "onlyonce-testkit",
        filter: "test(storm)",
        variable: "ONLYONCE_SEEDS",
        count: 10_000,
        kind: Kind::Shows,
    },
    Soak {
        name: "kills",
        title: "The engine on the embedded store is killed at random",
        package: "onlyonce-store-embedded",
        filter: "test(killed_at_random)",
        variable: "ONLYONCE_KILLS",
        count: 1_000,
        kind: Kind::Shows,
    },
    Soak {
        name: "crash-points",
        title: "The engine on the embedded store is killed at every named point, so many times each",
        package: "onlyonce-store-embedded",
        filter: "binary(engine_kill) & test(killed_at_every_named_point)",
        variable: "ONLYONCE_CRASHES",
        count: 150,
        kind: Kind::Shows,
    },
    Soak {
        name: "redis-crowd",
        title: "Four processes on one Redis send the same keys and are killed and paused at random",
        package: "onlyonce-store-redis",
        filter: "test(of_all_duplicates)",
        variable: "ONLYONCE_KILLS",
        count: 400,
        kind: Kind::Shows,
    },
    Soak {
        name: "redis-network",
        title: "One effect a key while the network before a Redis drops, delays, resets and half-closes",
        package: "onlyonce-store-redis",
        filter: "test(all_faults_of_the_network)",
        variable: "ONLYONCE_SEEDS",
        count: 100,
        kind: Kind::Shows,
    },
    Soak {
        name: "gateway",
        title: "The gateway on the embedded store, Redis and PostgreSQL, and the service behind it, are killed at random while clients retry, so many times each",
        package: "onlyonce-server",
        filter: "test(killed_at_random)",
        variable: "ONLYONCE_KILLS",
        count: 500,
        kind: Kind::Shows,
    },
    Soak {
        name: "consumer-kills",
        title: "Consumers on each broker, with leases, are killed so often while a hundred times as many messages flow",
        package: "onlyonce-consumer",
        filter: "binary(kill)",
        variable: "ONLYONCE_CONSUMER_KILLS",
        count: 100,
        kind: Kind::Shows,
    },
    Soak {
        name: "consumer-transactions",
        title: "Consumers on each broker, in the business transaction, are killed so often while a hundred times as many messages flow",
        package: "onlyonce-consumer",
        filter: "binary(transaction) & test(killed_at_random)",
        variable: "ONLYONCE_CONSUMER_KILLS",
        count: 100,
        kind: Kind::Shows,
    },
    Soak {
        name: "outbox-chain",
        title: "Relays of an outbox and consumers are killed so often while a hundred times as many requests are each sent twice",
        package: "onlyonce-consumer",
        filter: "test(the_chain_over_an_outbox)",
        variable: "ONLYONCE_CONSUMER_KILLS",
        count: 100,
        kind: Kind::Shows,
    },
    Soak {
        name: "sql-grown",
        title: "A call and a sweep among so many records cost what they cost among ten thousand, on each database",
        package: "onlyonce-sql",
        filter: "binary(grown)",
        variable: "ONLYONCE_RECORDS",
        count: 10_000_000,
        kind: Kind::Times("grown"),
    },
];

/// What came of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) count: u32,
    pub(super) took: Duration,
    pub(super) passed: bool,
}

impl Soak {
    /// Runs with its own count, or with as much as fits into `budget`.
    pub(super) fn run(&self, budget: Option<Duration>) -> Result<Outcome, Failure> {
        self.command().args(["--no-run"]).run()?; // compiling is not soaking
        let start = match self.kind {
            Kind::Shows => Services::start,
            Kind::Times(_) => Services::start_with_room,
        };
        let served = services::are_needed_by(self.package).then(start).transpose()?;
        let command = served.iter().fold(self.command(), |command, services| services.tell(command));
        let Some(budget) = budget else { return self.timed(&command, self.count) };
        let trial = self.timed(&command, self.count.div_ceil(20))?;
        if !trial.passed {
            return Ok(trial);
        }
        self.timed(&command, scaled(trial.count, trial.took, budget.saturating_sub(trial.took)))
    }

    fn timed(&self, command: &Cmd, count: u32) -> Result<Outcome, Failure> {
        let watch = Stopwatch::start();
        let status = command.clone().env(self.variable, count.to_string()).status()?;
        // Nextest's own code for a filter that matches nothing: nothing was shown, so nothing may be recorded.
        if status.code() == Some(4) {
            let Self { package, filter, .. } = self;
            return Err(Failure::failed(format!("did not run: no test of {package} matches {filter}")));
        }
        Ok(Outcome { count, took: watch.elapsed(), passed: status.success() })
    }

    /// The profile `soak` of .config/nextest.toml does not end a test for being slow.
    fn command(&self) -> Cmd {
        let nextest = Cmd::cargo("nextest run --profile soak --all-features --package").args([self.package]);
        let nextest = match self.kind {
            Kind::Shows => nextest,
            Kind::Times(file) => nextest.args(["--release", "--test-threads=1", "--test", file]),
        };
        nextest.args(["-E", self.filter])
    }
}

/// As many as fit into `budget`, at the pace of the trial; never fewer than the trial itself.
fn scaled(trial: u32, took: Duration, budget: Duration) -> u32 {
    let fit = f64::from(trial) * budget.as_secs_f64() / took.as_secs_f64().max(0.001);
    // A float that is too big becomes the biggest count.
    (fit as u32).max(trial)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trial_sets_the_count() {
        assert_eq!(scaled(50, Duration::from_secs(2), Duration::from_secs(60)), 1_500);
    }

    #[test]
    fn no_budget_is_too_small_or_too_big_for_a_count() {
        assert_eq!(scaled(50, Duration::from_secs(90), Duration::ZERO), 50);
        assert_eq!(scaled(50_000, Duration::ZERO, Duration::from_secs(600_000)), u32::MAX);
    }

    #[test]
    fn names_and_titles_are_each_used_once() {
        for (n, soak) in SOAKS.iter().enumerate() {
            let same = |other: &Soak| other.name == soak.name || other.title == soak.title;
            assert!(!SOAKS[..n].iter().any(same), "{}", soak.name);
        }
    }
}
