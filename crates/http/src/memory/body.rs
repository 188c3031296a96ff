//! The memory of a body while it is read.

use std::task::{Context, Poll};

use super::{Account, Eviction, EvictionMark, Reservation};

/// What a body is paid from while it is read.
pub(crate) struct BodyMemory {
    reserved: Reservation,
    payer: Payer,
}

enum Payer {
    /// A call that has not begun: it gives way.
    Request(Eviction),
    /// An answer of a call that ran: it is read in any case.
    Answer,
}

/// There is no room for a body.
#[derive(Debug)]
pub(crate) struct NoRoom;

/// An answer is in memory twice: as it is sent, and as it is stored.
const COPIES_OF_ANSWER: usize = 2;

impl BodyMemory {
    pub(crate) fn of_request(account: &Account, mark: Option<EvictionMark>) -> Self {
        let mark = mark.unwrap_or_else(|| account.mark());
        Self { reserved: account.nothing(), payer: Payer::Request(account.eviction_since(mark)) }
    }

    pub(crate) fn of_answer(account: &Account) -> Self {
        let mut reserved = account.nothing();
        reserved.keep();
        Self { reserved, payer: Payer::Answer }
    }

    pub(crate) async fn pay(&mut self, bytes: usize) -> Result<(), NoRoom> {
        match &mut self.payer {
            Payer::Request(eviction) => {
                if !eviction.is_asked() && self.reserved.grow(bytes) {
                    Ok(())
                } else {
                    Err(NoRoom)
                }
            }
            Payer::Answer => {
                self.reserved.grow_for_answer(bytes.saturating_mul(COPIES_OF_ANSWER)).await;
                Ok(())
            }
        }
    }

    /// Ends when the body has to give way.
    pub(crate) fn poll_eviction(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.payer {
            Payer::Request(eviction) => eviction.poll(cx),
            Payer::Answer => Poll::Pending,
        }
    }

    /// What was paid, now that the body is read.
    pub(crate) fn into_reservation(self) -> Reservation {
        self.reserved
    }
}
