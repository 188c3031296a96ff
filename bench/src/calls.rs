//! One call after the other: first runs with a key each, or replays of one.

use onlyonce::codec::CodecError;
use onlyonce::{Bytes, Class, Classify, Refusal};

/// Which calls are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Every call is new.
    First,
    /// One call runs, and is asked for again and again.
    Replay,
}

impl Kind {
    /// Makes so many calls.
    pub(crate) async fn repeat(self, calls: u64, call: impl AsyncFn(String)) {
        // Of the same length in every run.
        let run = format!("{:032x}", rand::random::<u128>());
        for n in 0..calls {
            let n = if self == Self::First { n } else { 0 };
            call(format!("{run}-{n:08}")).await;
        }
    }
}

/// The error of calls that never go wrong.
#[derive(Debug)]
pub(crate) enum Never {}

impl From<Refusal> for Never {
    fn from(refusal: Refusal) -> Self {
        panic!("a call was refused: {refusal}")
    }
}

impl Classify for Never {
    fn classify(&self) -> Class {
        match *self {}
    }

    fn save(&self) -> Result<Bytes, CodecError> {
        match *self {}
    }

    fn revive(_: Bytes) -> Result<Self, CodecError> {
        Err(CodecError::Damaged)
    }
}
