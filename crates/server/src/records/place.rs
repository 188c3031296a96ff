//! Where the records are: behind the admin API, or in a store that is opened here.

use std::sync::Arc;

use onlyonce::{
    Cursor, Filter, Hash16, Idempotency, Inspect, Key, Listed, RecordId, Resolution, Scope, Settled,
    StateKind,
};

use super::actor;
use super::cli::{PlaceArguments, Search};
use super::remote::Remote;
use crate::admin::{Audit, Change, Detail, Listing, RecordView, Resolve};
use crate::config::units;
use crate::failure::Failure;
use crate::stores::{self, Purpose};

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

    pub(super) fn reason(&self) -> &str {
        match self {
            Self::Resolve(decision) => &decision.reason,
            Self::Release { reason } | Self::Forget { reason } => reason,
        }
    }
}

impl Place {
    pub(super) async fn open(arguments: &PlaceArguments) -> Result<Self, Failure> {
        let Some(url) = &arguments.store else { return Remote::new(arguments).map(Self::Remote) };
        let store = stores::open(url, Purpose::Inspect).await?;
        let once = Idempotency::builder_shared(Arc::clone(&store) as Arc<dyn onlyonce::Store>).build();
        let once = once.map_err(|error| Failure::new(error.to_string()))?;
        let audit = Audit::open(&arguments.audit_log)?;
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

    pub(super) async fn show(&self, id: &str) -> Result<Detail, Failure> {
        match self {
            Self::Remote(remote) => remote.show(id).await,
            Self::Local(local) => Ok(Detail::of(&local.find(id).await?)),
        }
    }

    /// Changes the record that was seen; fails if it has moved on.
    pub(super) async fn change(&self, id: &str, seen: u64, wish: &Wish) -> Result<(), Failure> {
        match self {
            Self::Remote(remote) => remote.change(id, seen, wish).await,
            Self::Local(local) => local.change(id, seen, wish).await,
        }
    }
}

fn failed(error: &onlyonce::StoreError) -> Failure {
    Failure::because("the store failed", error)
}

impl Local {
    async fn find(&self, id: &str) -> Result<Listed, Failure> {
        let id: RecordId =
            id.parse().map_err(|error: onlyonce::InputError| Failure::usage(error.to_string()))?;
        let found = self.store.get(&id).await.map_err(|error| failed(&error))?;
        let snapshot =
            found.ok_or_else(|| Failure::new(format!("there is no record {id}, or it has expired")))?;
        Ok(Listed { id, snapshot })
    }

    async fn list(&self, search: &Search, cursor: Option<String>, limit: u32) -> Result<Listing, Failure> {
        let wrong = |error: onlyonce::InputError| Failure::usage(error.to_string());
        let key =
            search.key.as_deref().map(|text| Key::new(text).map(|key| Hash16::of_key(&key))).transpose();
        let scope =
            search.scope.as_deref().map(|text| Scope::new(text).map(|scope| Hash16::of_scope(&scope)));
        let filter = Filter {
            state: search.state.map(crate::admin::StateName::kind),
            route: search.route.as_deref().map(Into::into),
            key: key.map_err(wrong)?,
            scope: scope.transpose().map_err(wrong)?,
        };
        let since = search.since.as_deref().map(units::duration).transpose().map_err(Failure::usage)?;
        let page = self.store.list(&filter, cursor.map(Cursor).as_ref(), limit).await;
        let page = page.map_err(|error| failed(&error))?;
        let recent = |listed: &&Listed| since.is_none_or(|since| listed.snapshot.age <= since);
        let records = page.records.iter().filter(recent).map(RecordView::of).collect();
        Ok(Listing { records, next: page.next.map(|cursor| cursor.0) })
    }

    async fn change(&self, id: &str, seen: u64, wish: &Wish) -> Result<(), Failure> {
        let found = self.find(id).await?;
        let fence = found.snapshot.fence;
        if fence.0 != seen {
            return Err(Failure::new(format!("{id} has moved on since it was seen")));
        }
        self.note(&found, wish, "begun")?;
        let settled = match wish {
            Wish::Forget { .. } => self.once.forget(&found.id, fence).await,
            _ if found.snapshot.state.kind() != StateKind::Lapsed => {
                return Err(Failure::new(format!(
                    "the outcome of {id} is known; only an unknown one can be decided"
                )));
            }
            Wish::Release { .. } => self.once.resolve(&found.id, fence, Resolution::DidNotHappen).await,
            Wish::Resolve(decision) => {
                self.once.resolve(&found.id, fence, decision.resolution().map_err(Failure::usage)?).await
            }
        };
        match settled.map_err(|error| failed(&error))? {
            Settled::Applied => self.note(&found, wish, "done"),
            Settled::Lost => {
                self.note(&found, wish, "lost")?;
                Err(Failure::new(format!("{id} has moved on since it was seen, or runs")))
            }
        }
    }

    fn note(&self, found: &Listed, wish: &Wish, result: &str) -> Result<(), Failure> {
        let (action, why) = (wish.name(), wish.reason());
        let change = Change {
            action,
            record: found.id.to_string(),
            fence: found.snapshot.fence.0,
            who: &self.who,
            why,
            result,
        };
        self.audit.write(&change).map_err(|error| {
            Failure::because("the audit log can't be written, so nothing is changed", &error)
        })
    }
}
