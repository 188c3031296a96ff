//! A call whose answer is passed on as it comes: it ends when the answer ends, because nobody knows before whether it will be whole.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use onlyonce_core::{Answer, Class, Finished, RecordId, Running};
use tokio::runtime::Handle;

use crate::body::Pieces;
use crate::meter::Meter;
use crate::routes::Route;
use crate::whole::{BodyError, BoxError, WholeBody};

type Piece = Option<Result<Frame<Bytes>, BodyError>>;

/// A call that ran and has not ended.
pub(crate) struct Unsettled<B> {
    state: State,
    /// The last piece by its length, while the end has not come: whoever has all of it takes it for whole.
    held: Option<Frame<Bytes>>,
    /// Ends when nothing has come for too long; there while nothing comes.
    silence: Option<Ending>,
    /// Reads the rest of an answer that nobody waits for any more. Known by its address, because dropping knows nothing of `B`.
    read_out: fn(Pin<Box<WholeBody<B>>>, Open) -> Ending,
}

const SILENT: &str = "nothing more came, and its lease is lost";

type Ending = Pin<Box<dyn Future<Output = ()> + Send>>;

enum State {
    /// The answer is on its way.
    Open(Open),
    /// The body was polled and did not return: it panicked.
    Polling(Open),
    /// The end is being written; the last piece waits for it, and one that is held, so that whoever has the whole answer can rely
    /// on its record.
    Ending(Ending, Piece),
    /// The end is written; these are the trailers behind the piece that was held.
    Last(Piece),
    Ended,
}

/// What is needed to end a call.
pub(crate) struct Open {
    pub(crate) running: Running,
    /// What the answer means, if it comes whole, and what is kept of it.
    pub(crate) class: Class,
    pub(crate) record: Answer,
    pub(crate) id: RecordId,
    pub(crate) meter: Meter,
    pub(crate) route: Arc<Route>,
}

impl Open {
    /// Ends when the lease is lost, and for as long as a lease nothing more came: nobody renews it, and nobody may wait for ever.
    fn silence(&self) -> Ending {
        let (permit, once) = (self.running.permit().clone(), &self.route.once);
        let (clock, lease) = (Arc::clone(once.clock()), once.settings().lease);
        Box::pin(async move {
            permit.lost().await;
            clock.sleep(lease).await;
        })
    }

    /// Ends the call with what became of its answer.
    async fn end(self, whole: bool) {
        let Self { running, class, record, id, meter, route } = self;
        let class = if whole { class } else { Class::Unknown };
        let finished = running.end(class, record).await;
        meter.count(class.into(), &**route.once.clock());
        match finished {
            Ok(Finished::Stored | Finished::Pending) => {}
            Ok(Finished::Superseded(_)) => {
                tracing::warn!(record = %id, "another attempt took this call over while its answer went out");
            }
            Err(error) => {
                onlyonce_core::seldom!(error, record = %id, error = &error as &dyn std::error::Error, "the store failed");
            }
        }
    }
}

impl<B> Unsettled<B>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    pub(crate) fn new(open: Open) -> Self {
        Self {
            state: State::Open(open),
            held: None,
            silence: None,
            read_out: |body, open| Box::pin(read_out(body, open)),
        }
    }
}

impl<B> Unsettled<B> {
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// The next piece of the answer. The last one comes once the end of the call is written.
    pub(crate) fn poll_frame(
        &mut self,
        data: &mut Pieces,
        mut rest: Pin<&mut WholeBody<B>>,
        cx: &mut Context<'_>,
    ) -> Poll<Piece>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Open(open) => {
                    self.state = State::Polling(open);
                    let mut polled = match data.pop() {
                        Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                        None => rest.as_mut().poll_frame(cx),
                    };
                    let State::Polling(open) = std::mem::replace(&mut self.state, State::Ended) else {
                        return polled;
                    };
                    if polled.is_ready() {
                        self.silence = None;
                    } else if self.silence.get_or_insert_with(|| open.silence()).as_mut().poll(cx).is_ready()
                    {
                        polled = Poll::Ready(Some(Err(BodyError::Broken(SILENT.into()))));
                    }
                    let (whole, last) = match polled {
                        Poll::Ready(None) => (true, self.held.take().map(Ok)),
                        Poll::Ready(Some(Err(error))) => {
                            tracing::error!(record = %open.id, %error, "the answer broke off; the outcome is unknown");
                            self.held = None;
                            (false, Some(Err(error)))
                        }
                        Poll::Ready(Some(Ok(piece))) if data.is_empty() && rest.has_come() => {
                            let last = match self.held.take() {
                                Some(held) if is_empty(&piece) => held,
                                held => {
                                    self.held = held;
                                    piece
                                }
                            };
                            (true, Some(Ok(last)))
                        }
                        Poll::Ready(Some(Ok(piece))) if data.is_empty() && rest.lacks_only_its_end() => {
                            self.state = State::Open(open);
                            if self.held.is_some() && is_empty(&piece) {
                                continue;
                            }
                            match self.held.replace(piece) {
                                Some(before) => return Poll::Ready(Some(Ok(before))),
                                None => continue,
                            }
                        }
                        Poll::Ready(Some(Ok(_))) | Poll::Pending => {
                            self.state = State::Open(open);
                            return polled;
                        }
                    };
                    self.state = State::Ending(Box::pin(open.end(whole)), last);
                }
                State::Ending(mut ending, last) => match ending.as_mut().poll(cx) {
                    Poll::Ready(()) => {
                        let Some(held) = self.held.take() else { return Poll::Ready(last) };
                        self.state = State::Last(last);
                        return Poll::Ready(Some(Ok(held)));
                    }
                    Poll::Pending => {
                        self.state = State::Ending(ending, last);
                        return Poll::Pending;
                    }
                },
                State::Last(last) => return Poll::Ready(last),
                State::Polling(_) | State::Ended => return Poll::Ready(None),
            }
        }
    }

    /// Nobody waits for the answer any more. That stops nothing: it is read to its end, and the call ends with it.
    pub(crate) fn go_on(self, rest: Pin<Box<WholeBody<B>>>) {
        // Without a runtime the attempt is dropped, which leaves doubt.
        let Ok(runtime) = Handle::try_current() else { return };
        let ending = match self.state {
            State::Open(open) => (self.read_out)(rest, open),
            State::Polling(open) => {
                tracing::error!(record = %open.id, "the body of the answer panicked");
                Box::pin(open.end(false))
            }
            State::Ending(ending, _) => ending,
            State::Last(_) | State::Ended => return,
        };
        runtime.spawn(ending);
    }
}

fn is_empty(piece: &Frame<Bytes>) -> bool {
    piece.data_ref().is_some_and(Bytes::is_empty)
}

/// Reads an answer for nobody, as long as the lease is renewed.
async fn read_out<B>(mut body: Pin<Box<WholeBody<B>>>, open: Open)
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let permit = open.running.permit().clone();
    let whole = async {
        while !body.has_come() {
            match poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    tracing::error!(record = %open.id, %error, "the answer broke off; the outcome is unknown");
                    return false;
                }
                None => break,
            }
        }
        true
    };
    let whole = tokio::select! {
        whole = whole => whole,
        () = permit.lost() => false,
    };
    open.end(whole).await;
}

impl<B> fmt::Debug for Unsettled<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unsettled(..)")
    }
}
