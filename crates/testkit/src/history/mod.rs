//! What callers heard, and whether it fits what really happened.

mod check;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use onlyonce_core::{Bytes, StateKind};
use parking_lot::Mutex;

use crate::ledger::Ledger;
pub use check::{Summary, Violations};

/// What happened to one call, or to one record in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A call was given this answer, and the store has it.
    Answered(Bytes),
    /// A call was given this answer before the store had it: it may still be lost.
    Unstored(Bytes),
    /// A call was refused, for this reason.
    Refused(String),
    /// The record was in this state when everything was over; `None` if there was none.
    Ended(Option<StateKind>),
}

/// Everything that callers heard, by key. Clones write to the same.
///
/// ```
/// use onlyonce_testkit::{History, Ledger};
/// let (ledger, history) = (Ledger::in_memory(), History::new());
/// ledger.record("order-42", "receipt 7")?;
/// history.answered("order-42", "receipt 7");
/// history.answered("order-42", "receipt 7");
/// let summary = history.check(&ledger, 0.99)??;
/// assert_eq!((summary.keys, summary.effects), (1, 1));
///
/// ledger.record("order-42", "receipt 8")?;
/// let violations = history.check(&ledger, 0.99)?.unwrap_err();
/// assert!(violations.to_string().contains("order-42: 2 effects"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct History(Arc<Mutex<BTreeMap<String, Vec<Event>>>>);

impl History {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A call was given this answer, which the store has, or will have once everything is over.
    pub fn answered(&self, key: &str, answer: impl Into<Bytes>) {
        self.add(key, Event::Answered(answer.into()));
    }

    /// A call was given this answer while the store did not have it, by a process that may have died since.
    pub fn unstored(&self, key: &str, answer: impl Into<Bytes>) {
        self.add(key, Event::Unstored(answer.into()));
    }

    /// A call was refused, or ended without an answer.
    pub fn refused(&self, key: &str, why: impl fmt::Display) {
        self.add(key, Event::Refused(why.to_string()));
    }

    /// The record was found like this after everything was over and every lease had had its time.
    pub fn ended(&self, key: &str, state: Option<StateKind>) {
        self.add(key, Event::Ended(state));
    }

    fn add(&self, key: &str, event: Event) {
        self.0.lock().entry(key.to_owned()).or_default().push(event);
    }

    /// Holds what callers heard against what happened: at most one effect a key, one answer a key, no answer without an
    /// effect, none but that of the effect ([`Effect::by`](crate::Effect::by)), and at least `share` (0 to 1) of the calls answered,
    /// else nothing was shown.
    ///
    /// Where the ends of records are known, they are known of every key, none is still in progress, a stored answer ended as
    /// completed, and no record that would let a retry run hides an effect.
    ///
    /// # Errors
    /// The outer one if the ledger can't be read; the inner one names every key that is wrong, with its history.
    pub fn check(&self, ledger: &Ledger, share: f64) -> io::Result<Result<Summary, Violations>> {
        Ok(check::check(&self.0.lock(), &ledger.effects()?, share))
    }
}
