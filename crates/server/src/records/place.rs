//! Where the records are: behind the admin API, or in a store that is opened here.

use std::sync::Arc;
use std::time::Duration;

use onlyonce::{Drained, Idempotency, Inspect, Listed, Resolution, Settings};

use super::actor;
use super::cli::{PlaceArguments, Search};
use super::remote::Remote;
use crate::admin::{
    Audit, Deed, Detail, IdWord, Listing, NotOne, RecordView, Repair, Resolve, StateName, Unlisted,
    Unrepaired, several,
};
use crate::failure::Failure;
use crate::gateway::scope;
use crate::say::{aside, complain};
use crate::stores::{self, Purpose};

/// How long a command stays for a store that failed amid a change.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) enum Place {
    Remote(Remote),
    Local(Local),
}

#[derive(Debug)]
pub(super) struct Local {
    store: Arc<dyn Inspect>,
    once: Idempotency,
    audit: Audit,
    who: String,
}

/// What is to be done to a record.
#[derive(Debug, Clone)]
pub(super) enum Wish {
    Resolve(Box<Resolve>),
    Release { reason: String },
    Forget { reason: String },
}

impl Wish {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Resolve(_) => "resolve",
            Self::Release { .. } => "release",
            Self::Forget { .. } => "forget",
        }
    }

    fn deed(&self) -> Result<Deed, String> {
        match self {
            Self::Resolve(decision) => decision.deed(),
            Self::Release { .. } => Ok(Deed::Decide(Resolution::DidNotHappen, None)),
            Self::Forget { .. } => Ok(Deed::Forget),
        }
    }

    pub(super) fn reason(&self) -> &str {
        match self {
            Self::Resolve(decision) => &decision.reason,
            Self::Release { reason } | Self::Forget { reason } => reason,
        }
    }
}

impl Place {
    pub(super) async fn open(arguments: &PlaceArguments, purpose: Use) -> Result<Self, Failure> {
        arguments.check()?;
        let Some(url) = &arguments.store else { return Remote::new(arguments).map(Self::Remote) };
        let store = stores::open(url, Purpose::Inspect).await?;
        let once = Idempotency::builder_shared(Arc::clone(&store) as Arc<dyn onlyonce::Store>).build();
        let once = once.map_err(|error| Failure::new(error.to_string()))?;
        let audit = match purpose {
            Use::Look => Audit::nowhere(),
            Use::Change => {
                Audit::open(arguments.audit_log.as_deref().unwrap_or("onlyonce-audit.log".as_ref()))?
            }
        };
        Ok(Self::Local(Local { store, once, audit, who: actor::name(arguments.who.as_deref()) }))
    }

    pub(super) async fn list(
        &self,
        search: &Search,
        cursor: Option<String>,
        limit: u32,
    ) -> Result<Listing, Failure> {
        match self {
            Self::Remote(remote) => remote.list(search, cursor, limit).await,
            Self::Local(local) => local.list(search, cursor, limit).await,
        }
    }

    pub(super) async fn show(&self, id: &IdWord) -> Result<Detail, Failure> {
        match self {
            Self::Remote(remote) => remote.show(id).await,
            Self::Local(local) => Ok(Detail::of(&local.find(id).await?)),
        }
    }

    /// Lets a repair that failed half-way put back what was seen: with this process that would be lost.
    pub(super) async fn leave(self) {
        let Self::Local(local) = self else { return };
        if local.once.in_flight() > 0 {
            aside("the store failed amid a change; what was seen is being put back …\n");
        }
        if let Drained::Left(left) = local.once.drain(PATIENCE).await {
            complain(&format!(
                "onlyonce: the store does not answer; what was seen of {left} outcomes may be lost"
            ));
        }
    }

    /// Changes the record that was seen; fails if it has moved on.
    pub(super) async fn change(&self, seen: &Seen, wish: &Wish) -> Result<(), Failure> {
        match self {
            Self::Remote(remote) => remote.change(seen, wish).await,
            Self::Local(local) => local.change(seen, wish).await,
        }
    }
}

/// What a place is opened for. Looking leaves no file behind, and needs no place to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Look,
    Change,
}

/// A record as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) id: String,
    pub(super) fence: u64,
    pub(super) state: StateName,
}

impl Seen {
    pub(super) fn of(record: &RecordView) -> Self {
        Self { id: record.id.clone(), fence: record.fence, state: record.state }
    }
}

fn failed(error: &onlyonce::StoreError) -> Failure {
    Failure::because("the store failed", error)
}

impl Local {
    async fn find(&self, id: &IdWord) -> Result<Listed, Failure> {
        id.find(&*self.store).await.map_err(|why| match why {
            NotOne::None => Failure::new(format!("there is no record {}, or it has expired", id.as_str())),
            NotOne::Several(candidates) => Failure::usage(several(&candidates)),
            NotOne::Store(error) => failed(&error),
        })
    }

    async fn list(&self, search: &Search, cursor: Option<String>, limit: u32) -> Result<Listing, Failure> {
        // Of how many parts the scopes are made stands in the configuration of a gateway, which is not known here.
        let search = search.words().meaning(|text| scope::named(text, 1)).map_err(Failure::usage)?;
        let page = search.page(&*self.store, cursor.as_deref(), limit).await;
        let page = page.map_err(|why| match why {
            Unlisted::Cursor => Failure::new("the listing can't be gone on with"),
            Unlisted::Store(error) => failed(&error),
        })?;
        let records = page.records.iter().map(RecordView::of).collect();
        Ok(Listing { records, next: page.next.map(|cursor| cursor.0) })
    }

    async fn change(&self, seen: &Seen, wish: &Wish) -> Result<(), Failure> {
        let id = &seen.id;
        let found = self.find(&IdWord::parse(id).map_err(Failure::usage)?).await?;
        let (who, why) = (self.who.clone(), wish.reason().to_owned());
        let (fence, state) = (Some(seen.fence), Some(seen.state));
        let deed = wish.deed().map_err(Failure::usage)?;
        let repair = Repair { action: wish.name(), deed, who, why, fence, state };
        // Which route it belongs to is not known here. No decision makes a record expire earlier than it would have.
        let settings = self.once.settings();
        let retain = settings.retain.max(found.snapshot.expires_in);
        let longer = self.once.with_settings(Settings { retain, ..(**settings).clone() });
        let once = longer.unwrap_or_else(|_| self.once.clone());
        repair.apply(&once, &*self.store, &self.audit, &found).await.map_err(|why| match why {
            Unrepaired::Moved => Failure::new("it has moved on since it was seen"),
            Unrepaired::Runs => Failure::new("an attempt runs; wait for its end"),
            Unrepaired::Known(state) => {
                Failure::new(format!("it is {}; only an unknown outcome can be decided", state.name()))
            }
            Unrepaired::Mark => Failure::new("it is the mark of a sequence, and has no answer; release it"),
            Unrepaired::Unwritten(error) => {
                Failure::because("the audit log can't be written, so nothing is changed", &error)
            }
            Unrepaired::Store(error) => {
                Failure::because("the store failed, and it may have been changed: look again", &error)
            }
        })
    }
}
