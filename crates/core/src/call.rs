//! Calls in code: an async block that runs at most once per key.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::Instrument;

use crate::classify::{Class, Classify};
use crate::codec::CodecError;
use crate::engine::Idempotency;
use crate::error::InputError;
use crate::fingerprint::Fingerprint;
use crate::key::{Hash16, Key, Operation, RecordId, Scope};
use crate::lease::Permit;
use crate::record::{Answer, Label};
use crate::refusal::Refusal;
use crate::running::{Cleared, Finished, Prior, Recovery, Running, Started};
use crate::sequence::Admitted;
use crate::settings::Intent;
use crate::value;

type Hook = Box<dyn FnOnce(Permit) -> Pin<Box<dyn Future<Output = Recovery<Answer>> + Send>> + Send>;

/// One call, being described. Made by [`Idempotency::call`].
///
/// The body's error type says which of its cases are answers ([`Classify`]) and is made from a [`Refusal`] when the body
/// did not run.
#[must_use = "a call does nothing until it is run"]
pub struct Call {
    once: Idempotency,
    operation: Box<str>,
    key: Box<str>,
    scope: Result<Scope, InputError>,
    input: Result<Fingerprint, InputError>,
    recover: Option<Hook>,
    /// Its number, if it must be higher than all before.
    increasing: Option<u64>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("operation", &self.operation).finish_non_exhaustive()
    }
}

impl Call {
    pub(crate) fn new(once: Idempotency, operation: &str, key: Box<str>) -> Self {
        let (scope, input) = (Ok(Scope::shared()), Ok(Fingerprint::empty()));
        Self { once, operation: operation.into(), key, scope, input, recover: None, increasing: None }
    }

    /// On whose behalf: the same key of another caller is another call.
    pub fn scope(mut self, name: &str) -> Self {
        self.scope = Scope::new(name);
        self
    }

    pub(crate) fn increasing(mut self, sequence: u64) -> Self {
        self.increasing = Some(sequence);
        self
    }

    /// The payload, so that the same key with another payload is refused. Digested here: the body may consume it.
    pub fn input<T: Serialize + ?Sized>(mut self, input: &T) -> Self {
        self.input = Fingerprint::of(input);
        self
    }

    /// For [`OnLapse::Ask`](crate::OnLapse::Ask): finds out whether an attempt that ended without a word happened.
    /// "Not done" must mean that it can no longer happen.
    pub fn recover<T, F>(mut self, hook: impl FnOnce(Permit) -> F + Send + 'static) -> Self
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Recovery<T>> + Send + 'static,
    {
        self.recover = Some(Box::new(move |permit| {
            Box::pin(async move {
                match hook(permit).await {
                    Recovery::NotDone => Recovery::NotDone,
                    Recovery::Unknown => Recovery::Unknown,
                    Recovery::Done(value) => {
                        Recovery::Done(value::save_ok(&value).unwrap_or_else(|error| kept_without(&error)))
                    }
                }
            })
        }));
        self
    }

    /// The record of this call.
    ///
    /// # Errors
    /// If key, scope or operation can't be used.
    pub fn record_id(&self) -> Result<RecordId, InputError> {
        let scope = self.scope.as_ref().map_err(Clone::clone)?;
        Ok(RecordId::of(scope, &Operation::new(&self.operation)?, &Key::new(self.key.clone())?))
    }

    /// Runs the body unless the call was made before; then gives the answer of that time.
    ///
    /// # Errors
    /// The body's own error, or one made from a [`Refusal`].
    ///
    /// # Cancel safety
    /// Dropped before the body's first poll the call is released; dropped later its outcome is unknown. Where the caller
    /// may go away, use [`run_detached`](Self::run_detached).
    pub async fn run<T, E, F>(self, body: F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: Classify + From<Refusal>,
    {
        self.run_with(|_| body).await
    }

    /// As [`run`](Self::run), and the body learns under which [`Permit`] it runs: its fence, and when it is lost.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_with<T, E, F>(self, body: impl FnOnce(Permit) -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: Classify + From<Refusal>,
    {
        let mut running = match self.start().await? {
            Cleared::Run(running) => running,
            Cleared::Prior(prior) => return revive(prior),
        };
        let permit = running.permit().clone();
        let span =
            tracing::debug_span!("onlyonce.run", record = %permit.record_id(), fence = %permit.fence());
        running.begun();
        let result = body(permit).instrument(span).await;
        settle(running, result).await
    }

    /// As [`run`](Self::run), in a task of its own: it goes on when the caller goes away. If the body panics, its outcome
    /// is unknown.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_detached<T, E, F>(self, body: F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Classify + From<Refusal> + Send + 'static,
    {
        self.run_detached_with(|_| body).await
    }

    /// As [`run_detached`](Self::run_detached), and the body learns under which [`Permit`] it runs.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_detached_with<T, E, F>(
        self,
        body: impl FnOnce(Permit) -> F + Send + 'static,
    ) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Classify + From<Refusal> + Send + 'static,
    {
        let task = tokio::spawn(self.run_with(body).in_current_span());
        task.await.unwrap_or_else(|_| Err(Refusal::unknown().into()))
    }

    async fn start(mut self) -> Result<Cleared, Refusal> {
        let id = self.record_id()?;
        let scope = self.scope?;
        let (once, increasing) = (self.once, self.increasing);
        if increasing.is_some() {
            once.may_order()?;
        }
        let operation = Operation::new(&self.operation)?;
        let intent = Arc::new(Intent {
            fingerprint: self.input?,
            label: Label {
                route: self.operation.into(),
                key: Hash16::of_key(&Key::new(self.key)?),
                scope: Hash16::of_scope(&scope),
            },
            settings: Arc::clone(once.settings()),
        });
        let cleared = match once.start(&id, &intent).await? {
            Started::Run(running) => Cleared::Run(running),
            Started::Prior(prior) => Cleared::Prior(prior),
            Started::Ask(asking) => {
                let found = match self.recover.take() {
                    Some(hook) => hook(asking.permit().clone()).await,
                    None => {
                        tracing::error!(record = %id, "OnLapse::Ask needs Call::recover; the outcome stays unknown");
                        Recovery::Unknown
                    }
                };
                asking.resolve(found).await?
            }
        };
        match (cleared, increasing) {
            (Cleared::Run(running), Some(sequence)) => {
                match once.admit(running, &scope, &operation, sequence).await? {
                    Admitted::Run(running) => Ok(Cleared::Run(running)),
                    Admitted::OutOfOrder { last } => Err(Refusal::OutOfOrder { last }),
                }
            }
            (cleared, _) => Ok(cleared),
        }
    }
}

fn revive<T, E>(prior: Prior) -> Result<T, E>
where
    T: DeserializeOwned,
    E: Classify + From<Refusal>,
{
    match prior {
        Prior::Refused(refusal) => Err(refusal.into()),
        Prior::Replay(replay) => value::revive(replay.answer).unwrap_or_else(|error| {
            tracing::error!(%error, "a stored answer can't be read");
            Err(Refusal::Unreadable.into())
        }),
    }
}

async fn settle<T, E>(mut running: Running, result: Result<T, E>) -> Result<T, E>
where
    T: Serialize + DeserializeOwned,
    E: Classify + From<Refusal>,
{
    let class = result.as_ref().map_or_else(Classify::classify, |_| Class::Keep);
    let record = match class {
        Class::Keep => value::save(&result).unwrap_or_else(|error| kept_without(&error)),
        Class::Release | Class::Unknown => Answer::none(),
    };
    if result.is_err() && class == Class::Keep {
        running.refused();
    }
    let finished = running.end(class, record).await;
    match finished.map_err(Refusal::from)? {
        Finished::Stored | Finished::Pending => result,
        Finished::Superseded(prior) => revive(prior),
    }
}

/// An answer that can't be stored must not make the effect repeatable: it is kept without its answer.
fn kept_without(error: &CodecError) -> Answer {
    tracing::error!(%error, "the answer can't be stored; duplicates will be refused");
    Answer::none()
}
