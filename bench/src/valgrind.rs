//! A program under callgrind: instructions, and how often it called what costs.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::case::Counts;

/// A run under callgrind, and where it leaves its profile.
#[derive(Debug)]
pub(crate) struct Callgrind(TempDir);

impl Callgrind {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().expect("a folder"))
    }

    /// The program, to be run once.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--quiet"]).stdin(Stdio::null());
        command.arg(format!("--callgrind-out-file={}", self.0.path().join("profile").display())).arg(program);
        command
    }

    /// What was counted, once the program has ended.
    pub(crate) fn counts(&self, wanted: &[What]) -> Counts {
        let profile = std::fs::read_to_string(self.0.path().join("profile"));
        let profile = Profile::parse(&profile.expect("callgrind writes a profile at its end"));
        wanted.iter().map(|what| (what.name(), profile.of(*what))).collect()
    }
}

/// What can be counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    Instructions,
    Allocations,
    Writes,
    Syncs,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Allocations => "allocations",
            Self::Writes => "writes",
            Self::Syncs => "syncs",
        }
    }

    /// The functions of the C library that do it.
    fn functions(self) -> &'static [&'static str] {
        match self {
            Self::Instructions => &[],
            Self::Allocations => {
                &["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign"]
            }
            Self::Writes => &["write", "writev", "pwrite64", "pwritev", "send", "sendto", "sendmsg"],
            Self::Syncs => &["fsync", "fdatasync", "sync_file_range"],
        }
    }
}

/// What callgrind wrote, as far as it is needed.
#[derive(Debug, Default, PartialEq)]
struct Profile {
    instructions: u64,
    calls: HashMap<String, u64>,
}

impl Profile {
    /// The format names a function once, `(7) malloc`, and by its number from then on. `calls=` follows the line with the one
    /// that is called, `cfn=`.
    fn parse(text: &str) -> Self {
        let mut profile = Self::default();
        let mut names: HashMap<&str, &str> = HashMap::new();
        let mut called = "";
        for line in text.lines() {
            if let Some(function) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
                let (number, name) = function.split_once(' ').unwrap_or((function, ""));
                if !name.is_empty() {
                    names.insert(number, name);
                }
                called = names.get(number).copied().unwrap_or_default();
            } else if let Some(calls) = line.strip_prefix("calls=") {
                let calls: u64 =
                    calls.split(' ').next().and_then(|calls| calls.parse().ok()).expect("a number");
                // Another version of a function is still that function: `realloc'2` where it calls itself.
                let name = called.split('\'').next().unwrap_or_default();
                *profile.calls.entry(name.to_owned()).or_default() += calls;
            } else if let Some(total) =
                line.strip_prefix("totals: ").or_else(|| line.strip_prefix("summary: "))
            {
                profile.instructions = total.trim().parse().expect("a number");
            }
        }
        profile
    }

    fn of(&self, what: What) -> u64 {
        match what {
            What::Instructions => self.instructions,
            called => called.functions().iter().filter_map(|name| self.calls.get(*name)).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_summed_by_name_whoever_made_them() {
        let text = "fn=(1) main\n1 5\ncfn=(2) malloc\ncalls=3 0\n1 60\ncfn=(3) realloc\ncalls=1 0\n1 9\nfn=(4) other\n\
                    cfn=(2)\ncalls=4 0\n1 80\ncfn=(5) realloc'2\ncalls=2 0\n1 1\n\ntotals: 155\n";
        let profile = Profile::parse(text);
        assert_eq!((profile.of(What::Instructions), profile.calls["malloc"]), (155, 7));
        assert_eq!((profile.of(What::Allocations), profile.of(What::Syncs)), (10, 0));
    }
}
