//! What is done beside the writer, on a thread of its own: giving the room of deleted records back to the disk, and looking whether a full
//! disk has room again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::engine::EngineError;
use crate::shared::Shared;
use crate::writer::Op;

/// How often a full disk is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Wakes up at the writer's wish, and while the disk is full; ends when the writer is gone.
pub(crate) fn run(shared: &Shared, wishes: &Receiver<()>, queue: &mpsc::WeakSender<Op>) {
    loop {
        let woken = match shared.is_full() {
            true => wishes.recv_timeout(LOOK_EVERY),
            false => wishes.recv().map_err(RecvTimeoutError::from),
        };
        if woken == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        // A panic costs this one try: without this thread a full disk would stay full for ever.
        let done = catch_unwind(AssertUnwindSafe(|| match shared.is_full() {
            true => reopen(shared, queue),
            false => reclaim(shared, queue),
        }));
        match done {
            Ok(Ok(())) => {}
            Ok(Err(cause)) => tracing::warn!(%cause, "room of deleted records could not be reclaimed"),
            Err(_) => tracing::error!("the thread beside the writer panicked, and goes on"),
        }
    }
}

/// Lets the writer open the store again if there is room.
fn reopen(shared: &Shared, queue: &mpsc::WeakSender<Op>) -> Result<(), EngineError> {
    if shared.has_room() {
        ask(queue, |reply| Op::Reopen { reply });
    }
    Ok(())
}

fn reclaim(shared: &Shared, queue: &mpsc::WeakSender<Op>) -> Result<(), EngineError> {
    let engine =
        |work: &dyn Fn(&crate::engine::Engine) -> Result<(), EngineError>| match shared.open("reclaim") {
            Ok(open) => work(&open.engine),
            Err(_) => Err(EngineError::Stopped),
        };
    engine(&|engine| engine.compact())?;
    // The engine lets go of the old tables when it makes a new one after two more writes; an idle store has none to offer.
    for _ in 0..2 {
        if !ask(queue, |reply| Op::Touch { reply }) {
            return Ok(());
        }
    }
    engine(&|engine| engine.write_tables())
}

/// Puts an operation into the queue and waits until it is done; says whether it was.
fn ask(queue: &mpsc::WeakSender<Op>, op: impl FnOnce(oneshot::Sender<()>) -> Op) -> bool {
    let (reply, done) = oneshot::channel();
    let sent = queue.upgrade().is_some_and(|queue| queue.blocking_send(op(reply)).is_ok());
    sent && done.blocking_recv().is_ok()
}
