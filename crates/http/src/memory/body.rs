//! The memory of a body while it is read.

use std::task::{Context, Poll};

use super::{Account, Eviction, EvictionMark, Place, Reservation};

/// What a body is paid from while it is read.
pub(crate) struct BodyMemory {
    reserved: Reservation,
    payer: Payer,
}

enum Payer {
    /// A call that has not begun: it gives way.
    Request(Eviction),
    /// An answer of a call that ran: it is read in any case.
    Answer {
        place: Place,
        /// What was paid of it and has not come yet.
        ahead: usize,
    },
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

    pub(crate) fn of_answer(account: &Account, place: Place) -> Self {
        let mut reserved = account.nothing();
        reserved.keep();
        Self { reserved, payer: Payer::Answer { place, ahead: 0 } }
    }

    /// Pays for all of an answer whose length is known, so that nobody holds a part of one and waits for the rest. A request's length is
    /// only what a caller says.
    pub(crate) async fn pay_ahead(&mut self, bytes: usize) {
        if let Payer::Answer { ahead, .. } = &mut self.payer {
            self.reserved.grow_for_answer(bytes.saturating_mul(COPIES_OF_ANSWER)).await;
            *ahead = bytes;
        }
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
            Payer::Answer { ahead, .. } => {
                let more = bytes.saturating_sub(*ahead);
                *ahead -= bytes - more;
                if more > 0 {
                    self.reserved.grow_for_answer(more.saturating_mul(COPIES_OF_ANSWER)).await;
                }
                Ok(())
            }
        }
    }

    /// Ends when the body has to give way.
    pub(crate) fn poll_eviction(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.payer {
            Payer::Request(eviction) => eviction.poll(cx),
            Payer::Answer { .. } => Poll::Pending,
        }
    }

    /// What was paid, now that the body is read.
    pub(crate) fn into_reservation(self) -> Reservation {
        if let Payer::Answer { place, .. } = self.payer {
            self.reserved.note_size(place);
        }
        self.reserved
    }
}
