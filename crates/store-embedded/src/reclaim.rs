//! Gives the room of deleted records back to the disk, on a thread of its own and only when there is much of it.

use std::sync::mpsc::Receiver;

use tokio::sync::{mpsc, oneshot};

use crate::engine::EngineError;
use crate::shared::Shared;
use crate::writer::Op;

/// Serves the writer's wishes until the writer is gone.
pub(crate) fn run(shared: &Shared, wishes: &Receiver<()>, queue: &mpsc::WeakSender<Op>) {
    while wishes.recv().is_ok() {
        if let Err(cause) = reclaim(shared, queue) {
            tracing::warn!(%cause, "room of deleted records could not be reclaimed");
        }
    }
}

fn reclaim(shared: &Shared, queue: &mpsc::WeakSender<Op>) -> Result<(), EngineError> {
    shared.engine.compact()?;
    // The engine lets go of the old tables when it makes a new one after two more writes; an idle store has none to offer.
    for _ in 0..2 {
        let (reply, done) = oneshot::channel();
        let sent = queue.upgrade().is_some_and(|queue| queue.blocking_send(Op::Touch { reply }).is_ok());
        if !sent || done.blocking_recv().is_err() {
            return Ok(());
        }
    }
    shared.engine.write_tables()
}
