//! How long an upstream may be silent in the middle of its answer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Version};
use tokio::time::{Sleep, sleep};

use super::flow::Flow;

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

    /// Nothing has come yet; ready when that was so for too long, and nothing of its request was sent meanwhile.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, flow: Option<&Flow>) -> Poll<()> {
        let Some(patience) = self.patience else { return Poll::Pending };
        loop {
            ready!(self.timer.get_or_insert_with(|| Box::pin(sleep(patience))).as_mut().poll(cx));
            match flow.and_then(|flow| flow.left(patience)) {
                Some(left) => self.timer = Some(Box::pin(sleep(left))),
                None => return Poll::Ready(()),
            }
        }
    }
}

/// Whether these are the headers of an answer that may be silent for long.
pub(crate) fn is_events(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
    kind.is_some_and(|kind| kind.starts_with(b"text/event-stream") || kind.starts_with(GRPC))
}

const GRPC: &[u8] = b"application/grpc";

/// Whether these are the headers of a request that may be silent for long, in a version that gRPC is spoken in. That is the caller's
/// word alone, so there is a limit to how many are believed.
pub(crate) fn is_grpc(version: Version, headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.as_bytes().get(..GRPC.len()));
    version == Version::HTTP_2 && kind.is_some_and(|kind| kind.eq_ignore_ascii_case(GRPC))
}
