//! Starting and ending attempts: with leases here, inside a database transaction in `onlyonce-sql`.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::StoreError;
use crate::key::RecordId;
use crate::lease::Permit;
use crate::record::{Answer, Over, Settlement, Snapshot};
use crate::settings::Intent;

/// Something that can start attempts. Adapters use it through [`Idempotency`](crate::Idempotency).
#[async_trait]
pub trait Runner: fmt::Debug + Send + Sync + 'static {
    /// Starts an attempt, or says what is there. Waits for a running one as long as the settings say.
    ///
    /// # Errors
    /// If the backend fails; then nothing may run.
    async fn start(&self, id: &RecordId, intent: &Arc<Intent>) -> Result<Start, StoreError>;

    /// Reads the record.
    ///
    /// # Errors
    /// If the backend fails.
    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError>;
}

/// The answer to a start.
#[derive(Debug)]
pub enum Start {
    /// The caller, and nobody else, may run.
    Run(Box<dyn Attempt>),
    /// Somebody was there before.
    Taken(Snapshot),
}

/// One attempt that may run. Dropping it unsettled settles it in the background: released if it was never polled and
/// took over nothing doubtful, else unknown.
#[async_trait]
pub trait Attempt: fmt::Debug + Send {
    /// What the handler may know of it.
    fn permit(&self) -> &Permit;

    /// What it was begun over.
    fn over(&self) -> Over;

    /// What was seen of the attempt that this one took over, if anything.
    fn evidence(&self) -> Answer {
        Answer::none()
    }

    /// From now on the effect may have happened.
    fn polled(&mut self);

    /// The answer is wanted, but nothing else that the handler did: a business refusal. Called before
    /// [`settle`](Self::settle). It matters only where the effect and its record end together: there the effect is undone.
    fn refused(&mut self) {}

    /// Ends the attempt. An error means that this answer must not go out.
    async fn settle(self: Box<Self>, how: Settlement) -> Result<Finish, StoreError>;
}

/// How settling went.
#[derive(Debug)]
pub enum Finish {
    /// It is stored.
    Applied,
    /// It is not stored yet; that goes on in the background.
    Pending,
    /// The record has moved on; this is what it is now.
    Lost(Option<Snapshot>),
}
