//! A runner from elsewhere, counted: so that a drain waits for its calls too.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::drain::{Tracker, Visit};
use crate::error::{ErrorKind, StoreError};
use crate::keeper::Keeper;
use crate::key::RecordId;
use crate::lease::Permit;
use crate::record::{Answer, Over, Settlement, Snapshot};
use crate::runner::{Attempt, Finish, Runner, Start};
use crate::settings::Intent;

pub(crate) struct Tracked {
    pub(crate) inner: Arc<dyn Runner>,
    pub(crate) tracker: Tracker,
    /// For the sweeper.
    pub(crate) keeper: Keeper,
}

impl fmt::Debug for Tracked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl Runner for Tracked {
    async fn start(&self, id: &RecordId, intent: &Arc<Intent>) -> Result<Start, StoreError> {
        self.keeper.ensure_running();
        let busy = |why| StoreError::new(ErrorKind::Busy, "onlyonce", "start", why);
        let visit = self.tracker.enter().map_err(busy)?;
        Ok(match self.inner.start(id, intent).await? {
            Start::Run(attempt) => Start::Run(Box::new(Visiting { attempt, visit })),
            taken @ Start::Taken(_) => taken,
        })
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.inner.get(id).await
    }
}

#[derive(Debug)]
struct Visiting {
    attempt: Box<dyn Attempt>,
    visit: Visit,
}

#[async_trait]
impl Attempt for Visiting {
    fn permit(&self) -> &Permit {
        self.attempt.permit()
    }

    fn over(&self) -> Over {
        self.attempt.over()
    }

    fn evidence(&self) -> Answer {
        self.attempt.evidence()
    }

    fn polled(&mut self) {
        self.attempt.polled();
    }

    fn refused(&mut self) {
        self.attempt.refused();
    }

    async fn settle(self: Box<Self>, how: Settlement) -> Result<Finish, StoreError> {
        let Self { attempt, visit } = *self;
        let finish = attempt.settle(how).await;
        drop(visit);
        finish
    }
}
