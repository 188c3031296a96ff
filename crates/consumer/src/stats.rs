//! Counting what became of messages.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::decision::{Action, Outcome};

/// What became of the messages of a consumer since it started. The same counts are metrics:
/// `onlyonce_consumer_messages_total` by group, handler and outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Had their effect.
    pub done: u64,
    /// Had had it before.
    pub duplicates: u64,
    /// Were refused by the business.
    pub refused: u64,
    /// Failed and will come back.
    pub failed: u64,
    /// Were put off: handled elsewhere, or the store was down.
    pub delayed: u64,
    /// Are parked: nobody knows, and a person has to look.
    pub parked: u64,
    /// Went to the dead letter for another reason.
    pub dead: u64,
    /// Were decided on, but the broker did not confirm it: they are delivered again.
    pub unconfirmed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; 8]);

impl Counters {
    pub(crate) fn count(&self, group: &str, handler: &str, what: Counted) {
        self.0[what as usize].fetch_add(1, Ordering::Relaxed);
        metrics::counter!(
            "onlyonce_consumer_messages_total",
            "group" => group.to_owned(), "handler" => handler.to_owned(), "outcome" => what.word()
        )
        .increment(1);
    }

    pub(crate) fn read(&self) -> Stats {
        let [done, duplicates, refused, failed, delayed, parked, dead, unconfirmed] =
            [0, 1, 2, 3, 4, 5, 6, 7].map(|n: usize| self.0[n].load(Ordering::Relaxed));
        Stats { done, duplicates, refused, failed, delayed, parked, dead, unconfirmed }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Done,
    Duplicate,
    Refused,
    Failed,
    Delayed,
    Parked,
    Dead,
    Unconfirmed,
}

impl Counted {
    pub(crate) fn of(outcome: &Outcome, action: &Action) -> Self {
        match (action, outcome) {
            (Action::Park, _) => Self::Parked,
            (Action::DeadLetter(_), _) => Self::Dead,
            (Action::Delay(_), _) => Self::Delayed,
            (Action::Retry(_) | Action::RetryTopic(_), _) => Self::Failed,
            (Action::Ack, Outcome::Duplicate) => Self::Duplicate,
            (Action::Ack, Outcome::Refused) => Self::Refused,
            (Action::Ack, _) => Self::Done,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Duplicate => "duplicate",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Delayed => "delayed",
            Self::Parked => "parked",
            Self::Dead => "dead",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}
