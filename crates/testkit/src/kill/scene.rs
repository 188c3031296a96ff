//! What the harness and its victim have in common: a directory, and what the victim is to do.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::ledger::Ledger;

const NAME: &str = "ONLYONCE_VICTIM";
const DIRECTORY: &str = "ONLYONCE_VICTIM_DIRECTORY";
const ROUND: &str = "ONLYONCE_VICTIM_ROUND";

/// How many keys a round adds. Every round also takes up those of the round before it, dead or alive.
pub(super) const KEYS: u64 = 40;

/// What a victim is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// Make calls until it is killed, or there is nothing more to do.
    Round(u64),
    /// Retry every key up to this round once, and write down how it ended.
    Finish(u64),
}

/// Where a victim lives.
#[derive(Debug, Clone)]
pub(super) struct Scene(PathBuf);

impl Scene {
    pub(super) fn new(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// Where the store under test keeps its files.
    pub(super) fn store(&self) -> PathBuf {
        self.0.join("store")
    }

    /// What really happened.
    pub(super) fn effects(&self) -> Ledger {
        self.ledger("effects")
    }

    /// What callers heard: the answer, or `!` and the refusal.
    pub(super) fn heard(&self) -> Ledger {
        self.ledger("heard")
    }

    /// The state of each record in the end.
    pub(super) fn ended(&self) -> Ledger {
        self.ledger("ended")
    }

    fn ledger(&self, name: &str) -> Ledger {
        Ledger::in_file(self.0.join(name)).expect("a directory that can be written to")
    }

    /// This test again, as a child with a task.
    pub(super) fn victim(&self, test: &str, task: Task) -> Command {
        let this = env::current_exe().expect("a test has a path");
        let mut command = Command::new(this);
        let task = match task {
            Task::Round(round) => round.to_string(),
            Task::Finish(round) => format!("finish-{round}"),
        };
        command
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command.env(NAME, test).env(DIRECTORY, &self.0).env(ROUND, task);
        command
    }

    /// The scene and task of this process, if it is the victim of `test`.
    pub(super) fn of_victim(test: &str) -> Option<(Self, Task)> {
        if env::var(NAME).ok()? != test {
            return None;
        }
        let task = env::var(ROUND).ok()?;
        let task = match task.strip_prefix("finish-") {
            Some(round) => Task::Finish(round.parse().ok()?),
            None => Task::Round(task.parse().ok()?),
        };
        Some((Self(env::var_os(DIRECTORY)?.into()), task))
    }
}

/// The keys of a round: its own, and those of the round before.
pub(super) fn keys_of(round: u64) -> impl Iterator<Item = String> {
    (round.saturating_sub(1) * KEYS..(round + 1) * KEYS).map(|n| format!("key-{n}"))
}
