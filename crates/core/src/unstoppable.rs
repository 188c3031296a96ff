//! Work that is finished even if nobody waits for it any more.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tracing::{Instrument, Span};

/// A future, within a span, that goes on in a task of its own when it is dropped half-way: a client that disconnects stops
/// nothing.
///
/// While somebody waits it is polled in place: a task for every call would cost more than the rest of the engine.
pub struct Unstoppable<F: Future + Send + 'static>
where
    F::Output: Send + 'static,
{
    future: Option<Pin<Box<F>>>,
    span: Span,
    runtime: Handle,
}

impl<F: Future + Send + 'static> Unstoppable<F>
where
    F::Output: Send + 'static,
{
    /// Goes on with `future`, whatever happens to who waits.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn new(future: F, span: Span) -> Self {
        Self { future: Some(Box::pin(future)), span, runtime: Handle::current() }
    }
}

impl<F: Future + Send + 'static> Future for Unstoppable<F>
where
    F::Output: Send + 'static,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // Taken out, so that one that panics is not spawned afterwards.
        let mut future = self.future.take().expect("a future is not polled after it is ready");
        let polled = self.span.in_scope(|| future.as_mut().poll(cx));
        if polled.is_pending() {
            self.future = Some(future);
        }
        polled
    }
}

impl<F: Future + Send + 'static> Drop for Unstoppable<F>
where
    F::Output: Send + 'static,
{
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.runtime.spawn(future.instrument(self.span.clone()));
        }
    }
}

impl<F: Future + Send + 'static> fmt::Debug for Unstoppable<F>
where
    F::Output: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unstoppable(..)")
    }
}
