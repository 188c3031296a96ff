//! How long an upstream may be silent in the middle of its answer.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use tokio::time::{Sleep, sleep};

/// Runs while nothing comes of an answer.
pub(crate) struct Silence {
    /// None for answers that may be silent for as long as they like.
    patience: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Silence {
    /// For an answer with these headers: events come when something happens, and not before.
    pub(crate) fn of(headers: &HeaderMap, patience: Duration) -> Self {
        Self { patience: (!is_events(headers)).then_some(patience), timer: None }
    }

    /// Something came.
    pub(crate) fn ends(&mut self) {
        self.timer = None;
    }

    /// Nothing has come yet; ready when that was so for too long.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(patience) = self.patience else { return Poll::Pending };
        self.timer.get_or_insert_with(|| Box::pin(sleep(patience))).as_mut().poll(cx)
    }
}

fn is_events(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
    kind.is_some_and(|kind| kind.starts_with(b"text/event-stream") || kind.starts_with(b"application/grpc"))
}
