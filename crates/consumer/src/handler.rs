//! Handlers: what is written by the user, and how it ended.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::codec::Writer;
use onlyonce_core::{Answer, Class, Classify, Permit, Recovery};

use crate::message::Message;

/// One message to be handled, and the permission to do so.
#[derive(Debug, Clone)]
pub struct Job {
    message: Message,
    permit: Permit,
}

impl Job {
    pub(crate) fn new(message: Message, permit: Permit) -> Self {
        Self { message, permit }
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The permission: its fence for the resource that is changed, its record id for logs, when it is lost, and the
    /// transaction where there is one.
    #[must_use]
    pub fn permit(&self) -> &Permit {
        &self.permit
    }
}

/// How many messages a batch takes, and how long it waits for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// At most so many.
    pub max: u16,
    /// A batch that is not full yet goes ahead after this time.
    pub linger: Duration,
}

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
pub(crate) type One = Arc<dyn Fn(Job) -> BoxFuture<Ended> + Send + Sync>;
pub(crate) type Many = Arc<dyn Fn(Vec<Job>) -> BoxFuture<Vec<Ended>> + Send + Sync>;
pub(crate) type Ask = Arc<dyn Fn(Job) -> BoxFuture<Recovery<()>> + Send + Sync>;

#[derive(Clone)]
pub(crate) enum Handler {
    One(One),
    Many(Batch, Many),
}

impl Handler {
    pub(crate) fn one<F, E>(handler: impl Fn(Job) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Classify + fmt::Debug,
    {
        Self::One(Arc::new(move |job| {
            let handled = handler(job);
            Box::pin(async move { Ended::of(handled.await) })
        }))
    }

    pub(crate) fn many<F, E>(batch: Batch, handler: impl Fn(Vec<Job>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Vec<Result<(), E>>> + Send + 'static,
        E: Classify + fmt::Debug,
    {
        Self::Many(
            batch,
            Arc::new(move |jobs| {
                let handled = handler(jobs);
                Box::pin(async move { handled.await.into_iter().map(Ended::of).collect() })
            }),
        )
    }

    pub(crate) fn batch(&self) -> Batch {
        match self {
            Self::One(_) => Batch { max: 1, linger: Duration::ZERO },
            Self::Many(batch, _) => *batch,
        }
    }
}

/// How a handler ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    Done,
    Refused(Answer),
    Failed(String),
    Unknown(String),
}

/// The longest text of an error that is put into logs and headers.
const LONGEST_WHY: usize = 500;

impl Ended {
    fn of<E: Classify + fmt::Debug>(result: Result<(), E>) -> Self {
        let Err(error) = result else { return Self::Done };
        let mut why = format!("{error:?}");
        if let Some((cut, _)) = why.char_indices().nth(LONGEST_WHY) {
            why.truncate(cut);
        }
        match error.classify() {
            Class::Keep => Self::Refused(match error.save() {
                Ok(saved) => Answer(Writer::new(b'M', 1).bytes(&saved).finish()),
                Err(error) => {
                    tracing::error!(%error, "the refusal can't be stored; the message is on record without it");
                    Answer::none()
                }
            }),
            Class::Release => Self::Failed(why),
            Class::Unknown => Self::Unknown(why),
        }
    }
}
