//! Whether a keyed call is being sent right now, for the parts of an HTTP client below it that are told nothing else.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;

use reqwest::redirect::{Action, Attempt, Policy};
use tower_layer::Layer;
use tower_service::Service;

thread_local! {
    static SENDING: Cell<Option<Seen>> = const { Cell::new(None) };
}

/// What was seen of the HTTP client while a call was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// It is one of [`http`](crate::http), which follows no redirect of a keyed call, and it opened a connection.
    pub(crate) dialled: bool,
}

/// Puts the value back, also when polling panics.
struct Restore(Option<Seen>);

impl Drop for Restore {
    fn drop(&mut self) {
        SENDING.set(self.0);
    }
}

/// Sends a keyed call, and says what was seen of the client meanwhile.
pub(crate) async fn keyed<T>(sending: impl Future<Output = T>) -> (T, Seen) {
    let mut sending = pin!(sending);
    let mut seen = Seen::default();
    let sent = poll_fn(|cx| {
        let _restore = Restore(SENDING.replace(Some(seen)));
        let polled = sending.as_mut().poll(cx);
        seen = SENDING.get().unwrap_or(seen);
        polled
    });
    let sent = sent.await;
    (sent, seen)
}

/// The redirects of keyed calls are answers; others are followed as ever.
pub(crate) fn redirect(attempt: Attempt<'_>) -> Action {
    match SENDING.get() {
        Some(_) => attempt.stop(),
        None => Policy::default().redirect(attempt),
    }
}

/// Notes that a connection is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dialling;

impl<S> Layer<S> for Dialling {
    type Service = Dials<S>;

    fn layer(&self, connector: S) -> Dials<S> {
        Dials(connector)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Dials<S>(S);

impl<S: Service<R>, R> Service<R> for Dials<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, address: R) -> S::Future {
        if SENDING.get().is_some() {
            SENDING.set(Some(Seen { dialled: true }));
        }
        self.0.call(address)
    }
}
