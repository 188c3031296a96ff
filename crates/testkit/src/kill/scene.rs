//! What the harness and its victim have in common: a directory, and what the victim is to do.

use std::env;
use std::fmt;
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
    /// Send the keys as they come up, among other processes.
    Crowd(Share),
    /// Retry every key of the crowd once, and write down how it ended.
    Sum(Share),
}

/// What the processes of a crowd send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    /// How many keys.
    pub(super) keys: u64,
    /// When the first of them comes up, in microseconds of the wall clock.
    pub(super) begin: u64,
    /// Microseconds from one key to the next.
    pub(super) pace: u64,
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

    /// What callers heard, each a [`Heard`] as text.
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
            Task::Crowd(Share { keys, begin, pace }) => format!("crowd-{keys}-{begin}-{pace}"),
            Task::Sum(Share { keys, begin, pace }) => format!("sum-{keys}-{begin}-{pace}"),
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
            let [keys, begin, pace] = words.map(|word| word.parse().ok());
            Some(Share { keys: keys?, begin: begin?, pace: pace? })
        };
        let task = match *task.split('-').collect::<Vec<_>>() {
            ["finish", round] => Task::Finish(round.parse().ok()?),
            ["crowd", keys, begin, pace] => Task::Crowd(share([keys, begin, pace])?),
            ["sum", keys, begin, pace] => Task::Sum(share([keys, begin, pace])?),
            [round] => Task::Round(round.parse().ok()?),
            _ => return None,
        };
        Some((Self(env::var_os(DIRECTORY)?.into()), task))
    }
}

/// What a caller heard. As text it is the answer, `~` and an answer that the store did not have yet, or `!` and the refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Heard {
    Stored(String),
    Pending(String),
    Refused(String),
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stored(answer) => f.write_str(answer),
            Self::Pending(answer) => write!(f, "~{answer}"),
            Self::Refused(why) => write!(f, "!{why}"),
        }
    }
}

impl From<String> for Heard {
    fn from(text: String) -> Self {
        match (text.strip_prefix('!'), text.strip_prefix('~')) {
            (Some(why), _) => Self::Refused(why.into()),
            (_, Some(answer)) => Self::Pending(answer.into()),
            _ => Self::Stored(text),
        }
    }
}

/// The keys of a round: its own, and those of the round before.
pub(super) fn keys_of(round: u64) -> impl Iterator<Item = String> {
    (round.saturating_sub(1) * KEYS..(round + 1) * KEYS).map(|n| format!("key-{n}"))
}
