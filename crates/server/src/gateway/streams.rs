//! The streams of an HTTP/2 connection. One whose reader does not read is cut off, and the others go on.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use onlyonce::http::Eviction;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

use super::tail::Unread;
use super::wire::Doings;

/// Runs the streams of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Streams {
    pub(crate) doings: Arc<Doings>,
    /// How long a reader may take nothing.
    pub(crate) timeout: Duration,
}

impl<F> Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        // Hyper hands over a stream right after it has called the service for it.
        match self.doings.take_stream() {
            Some(unread) => {
                let (eviction, timer, timeout) = (unread.account().eviction(), None, self.timeout);
                drop(tokio::spawn(Watched { stream, unread, eviction, timer, timeout }));
            }
            None => drop(tokio::spawn(stream)),
        }
    }
}

pin_project! {
    struct Watched<F> {
        #[pin]
        stream: F,
        unread: Arc<Unread>,
        eviction: Eviction,
        // Runs while the reader is waited for; with how many pieces it had taken before.
        timer: Option<(Pin<Box<Sleep>>, u32)>,
        timeout: Duration,
    }
}

impl<F: Future> Future for Watched<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.stream.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        loop {
            let (waits, written) = this.unread.look();
            if !waits {
                *this.timer = None;
                return Poll::Pending;
            }
            let (timer, before) = match this.timer {
                Some((timer, before)) if *before == written => (timer, before),
                _ => {
                    *this.eviction = this.unread.account().eviction();
                    // It was asked before it waited for its reader, and others wait for what it holds.
                    if this.unread.account().owes() {
                        return Poll::Ready(());
                    }
                    let timer = Box::pin(sleep(*this.timeout));
                    let (timer, before) = this.timer.insert((timer, written));
                    (timer, before)
                }
            };
            // The stream is reset when it is dropped.
            if this.eviction.poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if this.unread.look() == (true, *before) {
                return Poll::Ready(());
            }
        }
    }
}
