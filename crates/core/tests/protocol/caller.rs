//! One caller: an instance of the engine with a client that sends the same call again.

use onlyonce_core::{Answer, Begin, Fence, Owner, Settled, Verdict};

/// A message to the store, and what comes back. A reply that is lost is asked for again, with the same owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Wire<T> {
    Request,
    Reply(T),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Does {
    /// Between two calls.
    Rests,
    Begins(Wire<Begin>),
    Runs {
        fence: Fence,
        acted: bool,
    },
    Settles {
        fence: Fence,
        verdict: Verdict,
        wire: Wire<Settled>,
    },
    /// Killed. What it had sent may still arrive.
    Dead(Option<Late>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Late {
    Begin,
    Settle { fence: Fence, verdict: Verdict },
}

/// What the client was told last.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Heard {
    Answer(Answer),
    Failed,
    InProgress,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) number: u8,
    pub(crate) calls: u8,
    pub(crate) does: Does,
    pub(crate) heard: Option<Heard>,
}

impl Caller {
    pub(crate) fn new(number: u8) -> Self {
        Self { number, calls: 0, does: Does::Rests, heard: None }
    }

    /// Who runs: the caller, and which of its calls.
    pub(crate) fn tag(&self) -> [u8; 2] {
        [self.number, self.calls]
    }

    pub(crate) fn owner(&self) -> Owner {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&self.tag());
        Owner::from_bytes(bytes)
    }

    /// What the handler answers: it tells whose effect it was.
    pub(crate) fn answer(&self) -> Answer {
        Answer(self.tag().to_vec().into())
    }

    pub(crate) fn hears(&mut self, heard: Heard) {
        self.does = Does::Rests;
        self.heard = Some(heard);
    }

    /// A client sends the call again until it has an answer, or knows that nobody knows.
    pub(crate) fn may_call(&self, most: u8) -> bool {
        self.does == Does::Rests
            && self.calls < most
            && !matches!(self.heard, Some(Heard::Answer(_) | Heard::Unknown))
    }
}
