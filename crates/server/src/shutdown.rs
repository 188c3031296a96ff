//! The wish to stop, and the wish to read the configuration again.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ends at Ctrl-C or SIGTERM, which are caught from this call on, not from the first poll.
pub(crate) fn asked_for() -> impl Future<Output = ()> + Send {
    let wishes = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    async move {
        let [interrupt, terminate] = wishes.map(received);
        tokio::select! {
            () = interrupt => {}
            () = terminate => {}
        }
    }
}

async fn received(wish: std::io::Result<Signal>) {
    match wish {
        Ok(mut signal) => drop(signal.recv().await),
        // Without the handler there is nothing to wait for, and the default action ends the process anyway.
        Err(_) => std::future::pending().await,
    }
}

/// Wishes to read the configuration again: SIGHUP.
pub(crate) fn reloads() -> Option<Signal> {
    signal(SignalKind::hangup()).ok()
}
