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
    /// Send a share of the duplicates, among other processes.
    Crowd(Share),
    /// Retry every key of the crowd once, and write down how it ended.
    Sum(Share),
}

/// What one process of a crowd sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    /// How many keys.
    pub(super) keys: u64,
    /// How often each of them.
    pub(super) calls: u64,
    /// With which key to begin.
    pub(super) from: u64,
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
            Task::Crowd(Share { keys, calls, from }) => format!("crowd-{keys}-{calls}-{from}"),
            Task::Sum(Share { keys, calls, from }) => format!("sum-{keys}-{calls}-{from}"),
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
        let share = |words: [&str; 3]| {
            let [keys, calls, from] = words.map(|word| word.parse().ok());
            Some(Share { keys: keys?, calls: calls?, from: from? })
        };
        let task = match *task.split('-').collect::<Vec<_>>() {
            ["finish", round] => Task::Finish(round.parse().ok()?),
            ["crowd", keys, calls, from] => Task::Crowd(share([keys, calls, from])?),
            ["sum", keys, calls, from] => Task::Sum(share([keys, calls, from])?),
            [round] => Task::Round(round.parse().ok()?),
            _ => return None,
        };
        Some((Self(env::var_os(DIRECTORY)?.into()), task))
    }
}

/// The keys of a round: its own, and those of the round before.
pub(super) fn keys_of(round: u64) -> impl Iterator<Item = String> {
    (round.saturating_sub(1) * KEYS..(round + 1) * KEYS).map(|n| format!("key-{n}"))
}
