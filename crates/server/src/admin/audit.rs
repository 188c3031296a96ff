//! Every change by a person, with who and why: one JSON object a line, on disk before the change is made.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use onlyonce::{Clock, SystemClock};
use parking_lot::Mutex;
use serde::Serialize;

use super::view::{Outcome, StateName};
use crate::failure::Failure;

/// Where changes are written down.
#[derive(Debug)]
pub(crate) struct Audit(Option<Mutex<File>>);

/// A change.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Change<'a> {
    pub(crate) action: &'a str,
    /// Which way a doubt was ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<Outcome>,
    /// The status that retries get from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    pub(crate) record: String,
    /// The state before.
    pub(crate) was: StateName,
    pub(crate) fence: u64,
    pub(crate) who: &'a str,
    pub(crate) why: &'a str,
    /// `begun` before the change is made; then `done`, `lost` if the record had moved on, or `failed`: look what became of it.
    pub(crate) result: &'a str,
    /// How the store failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<&'a str>,
}

#[derive(Serialize)]
struct Line<'a> {
    /// Milliseconds since 1970.
    at: u64,
    #[serde(flatten)]
    change: &'a Change<'a>,
}

impl Audit {
    pub(crate) fn open(file: &Path) -> Result<Self, Failure> {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let opened = options.open(file).map_err(|error| {
            let what = format!(
                "the audit log {} can't be written; name another place with --audit-log",
                file.display()
            );
            Failure::because(&what, &error).into_usage()
        })?;
        Ok(Self(Some(Mutex::new(opened))))
    }

    /// Where nobody can change anything.
    pub(crate) fn nowhere() -> Self {
        Self(None)
    }

    /// Writes a change down. What can't be written down must not be done.
    pub(crate) fn write(&self, change: &Change<'_>) -> std::io::Result<()> {
        tracing::info!(
            target: "onlyonce::audit",
            action = change.action,
            outcome = change.outcome.map(Outcome::name),
            status = change.status,
            record = change.record,
            who = change.who,
            why = change.why,
            result = change.result,
            error = change.error,
            "audit"
        );
        let Some(file) = &self.0 else { return Ok(()) };
        let mut line = serde_json::to_vec(&Line { at: SystemClock.wall_micros() / 1000, change })?;
        line.push(b'\n');
        let mut file = file.lock();
        file.write_all(&line)?;
        file.sync_data()
    }
}
