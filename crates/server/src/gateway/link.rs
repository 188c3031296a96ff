//! One connection to an upstream, driven by whoever uses it: no task of its own, so no hand-over between threads.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use onlyonce::Moment;
use tokio::sync::OwnedSemaphorePermit;

use super::outgoing::Outgoing;
use super::upstream::Undelivered;
use super::wire::{Placed, Wire};

/// How long a connection that was used before may take to be ready again, before another one is made.
const SETTLING: Duration = Duration::from_millis(50);

/// How many headers an answer may have. One with more is lost, and what it was the answer to is unknown: generous.
pub(super) const MOST_HEADERS: usize = 256;

/// How large the head of an answer may be, and how much of a body is read ahead.
const MAX_BUFFER: usize = 64 << 10;

/// An HTTP/1.1 connection.
pub(crate) struct Link {
    sender: SendRequest<Outgoing>,
    /// Gone once it has ended, and when it was handed over for an upgrade.
    connection: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    pub(crate) idle_since: Moment,
    /// The body that is being sent.
    sending: Weak<AtomicUsize>,
}

impl Link {
    pub(crate) async fn new(wire: Wire, place: OwnedSemaphorePermit, now: Moment) -> hyper::Result<Self> {
        let mut builder = http1::Builder::new();
        builder.max_headers(MOST_HEADERS).max_buf_size(MAX_BUFFER);
        let (sender, connection) = builder.handshake(TokioIo::new(Placed { wire, _place: place })).await?;
        Ok(Self {
            sender,
            connection: Some(Box::pin(connection.with_upgrades())),
            idle_since: now,
            sending: Weak::new(),
        })
    }

    /// Whether the connection has ended, as far as that can be seen at once.
    pub(crate) fn is_over(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.connection.is_none()
    }

    /// Ends when the upstream closes the connection.
    pub(crate) async fn closed(&mut self) {
        poll_fn(|cx| {
            self.drive(cx);
            if self.connection.is_none() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Lets the connection read and write.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && connection.as_mut().poll(cx).is_ready()
        {
            self.connection = None;
        }
    }

    /// Whether another request can be sent. Looks at the socket, so that one that the upstream has closed is noticed.
    pub(crate) async fn is_ready(&mut self) -> bool {
        let mut look = |cx: &mut Context<'_>| {
            self.drive(cx);
            if self.connection.is_none() {
                return Poll::Ready(false);
            }
            self.sender.poll_ready(cx).map(|ready| ready.is_ok())
        };
        let at_once = poll_fn(|cx| Poll::Ready(look(cx))).await;
        match at_once {
            Poll::Ready(ready) => ready,
            Poll::Pending => tokio::time::timeout(SETTLING, poll_fn(look)).await.unwrap_or(false),
        }
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(
        &mut self,
        request: Request<Outgoing>,
    ) -> Result<Response<Incoming>, Undelivered> {
        self.sending = request.body().progress();
        let mut answer = pin!(self.sender.try_send_request(request));
        let sent = poll_fn(|cx| {
            if let Some(connection) = &mut self.connection
                && connection.as_mut().poll(cx).is_ready()
            {
                self.connection = None;
            }
            answer.as_mut().poll(cx)
        });
        sent.await.map_err(|mut refused| match refused.take_message() {
            Some(request) => Undelivered::Returned(Box::new(request)),
            None => Undelivered::of(&refused.into_error()),
        })
    }

    /// Whether a part of the request is still to be sent: its answer may come before.
    pub(crate) fn is_sending(&self) -> bool {
        self.sending.strong_count() > 0
    }

    /// Sends the rest of a request that was answered before all of it was sent; `false` if the upstream does not take it.
    pub(crate) async fn send_rest(&mut self, patience: Duration) -> bool {
        let taken =
            |sending: &Weak<AtomicUsize>| sending.upgrade().map(|taken| taken.load(Ordering::Relaxed));
        loop {
            let before = taken(&self.sending);
            let sent = poll_fn(|cx| {
                self.drive(cx);
                match (&self.connection, self.is_sending()) {
                    (None, _) => Poll::Ready(false),
                    (Some(_), false) => Poll::Ready(true),
                    (Some(_), true) => Poll::Pending,
                }
            });
            match tokio::time::timeout(patience, sent).await {
                Ok(sent) => return sent,
                Err(_) if taken(&self.sending) == before => return false,
                Err(_) => {}
            }
        }
    }

    /// Goes on in a task of its own until the protocol is switched.
    pub(crate) fn hand_over(self) {
        if let Some(connection) = self.connection {
            tokio::spawn(connection);
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link(..)")
    }
}
