//! What callers ask of the writer, and how it answers.

use onlyonce_core::{
    AttemptId, Begin, Claim, Fence, RecordId, Settled, Settlement, Snapshot, State, StoreError,
};
use tokio::sync::oneshot::Sender;

pub(crate) type Reply<T> = Sender<Result<T, StoreError>>;

#[derive(Debug)]
pub(crate) enum Op {
    Begin {
        id: RecordId,
        claim: Claim,
        reply: Reply<Begun>,
    },
    Settle {
        id: RecordId,
        attempt: AttemptId,
        how: Settlement,
        reply: Reply<Settled>,
    },
    Forget {
        id: RecordId,
        seen: Fence,
        reply: Reply<Settled>,
    },
    Sweep {
        limit: usize,
        reply: Reply<Swept>,
    },
    /// Write a batch, even if it changes nothing.
    Touch {
        reply: Sender<()>,
    },
    /// Open the store again, if it waits for room.
    Reopen {
        reply: Sender<()>,
    },
    /// Take what is queued, and no more.
    Close,
}

/// What a begin led to.
#[derive(Debug)]
pub(crate) enum Begun {
    Told(Begin),
    /// There is a large answer. Callers read it themselves, a few at a time: hundreds that the writer had read would wait in memory for
    /// those who asked for them.
    Large,
}

/// Larger answers are not read by the writer's side.
const LARGE: usize = 32 << 10;

impl From<Begin> for Begun {
    fn from(begin: Begin) -> Self {
        match begin {
            Begin::Taken(Snapshot {
                state: State::Completed(answer) | State::Lapsed { evidence: answer, .. },
                ..
            }) if answer.0.len() > LARGE => Self::Large,
            told => Self::Told(told),
        }
    }
}

/// What one part of a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Swept {
    /// How many records it deleted.
    pub(crate) deleted: usize,
    /// Whether there may be more.
    pub(crate) more: bool,
}

impl Op {
    /// Answers without doing anything.
    pub(super) fn refuse(self, why: impl FnOnce(&'static str) -> StoreError) {
        // A caller that is gone needs no answer.
        match self {
            Self::Begin { reply, .. } => drop(reply.send(Err(why("begin")))),
            Self::Settle { reply, .. } => drop(reply.send(Err(why("settle")))),
            Self::Forget { reply, .. } => drop(reply.send(Err(why("forget")))),
            Self::Sweep { reply, .. } => drop(reply.send(Err(why("sweep")))),
            // Who waits for them sees that there is no answer.
            Self::Touch { .. } | Self::Reopen { .. } | Self::Close => {}
        }
    }
}

/// An answer that waits for its batch to be durable.
#[derive(Debug)]
pub(super) enum Answer {
    Begin(Reply<Begun>, Result<Begun, StoreError>),
    Settled(Reply<Settled>, &'static str, Result<Settled, StoreError>),
    Swept(Reply<Swept>, Result<Swept, StoreError>),
    Touched(Sender<()>),
}

impl Answer {
    pub(super) fn send(self) {
        match self {
            Self::Begin(reply, answer) => drop(reply.send(answer)),
            Self::Settled(reply, _, answer) => drop(reply.send(answer)),
            Self::Swept(reply, answer) => drop(reply.send(answer)),
            Self::Touched(reply) => {
                let _ = reply.send(());
            }
        }
    }

    /// The batch failed: what was decided may or may not have come about. What had failed before is told as it was.
    pub(super) fn send_ambiguous(self, why: impl FnOnce(&'static str) -> StoreError) {
        match self {
            Self::Begin(reply, Ok(_)) => drop(reply.send(Err(why("begin")))),
            Self::Settled(reply, call, Ok(_)) => drop(reply.send(Err(why(call)))),
            Self::Swept(reply, Ok(_)) => drop(reply.send(Err(why("sweep")))),
            Self::Touched(_) => {}
            failed => failed.send(),
        }
    }
}
