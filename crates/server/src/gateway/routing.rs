//! Which upstream a request goes to.

use std::collections::HashMap;
use std::sync::Arc;

use http::request::Parts;

use super::scope::host;
use super::upstream::Upstream;
use crate::config::{Config, Forward, Target};

/// The upstreams, and who goes where.
#[derive(Debug)]
pub(crate) struct Routing {
    forwards: Vec<(Forward, Arc<Upstream>)>,
    usual: Option<Arc<Upstream>>,
}

impl Routing {
    /// Upstreams that were known before keep their connections.
    pub(crate) fn new(config: &Config, before: Option<&Self>) -> Self {
        let mut known: HashMap<Target, Arc<Upstream>> = before
            .into_iter()
            .flat_map(Self::all)
            .map(|upstream| (upstream.target.clone(), Arc::clone(upstream)))
            .collect();
        let mut upstream = |target: &Target| {
            let make =
                || Arc::new(Upstream::new(target.clone(), Arc::clone(&config.upstream_tls), config.limits));
            Arc::clone(known.entry(target.clone()).or_insert_with(make))
        };
        let forwards =
            config.forwards.iter().map(|forward| (forward.clone(), upstream(&forward.target))).collect();
        Self { forwards, usual: config.target.as_ref().map(&mut upstream) }
    }

    pub(crate) fn find(&self, parts: &Parts) -> Option<&Arc<Upstream>> {
        let host = if self.forwards.is_empty() { None } else { host(parts) };
        let forward =
            self.forwards.iter().find(|(forward, _)| forward.matches(&parts.method, host, parts.uri.path()));
        forward.map(|(_, upstream)| upstream).or(self.usual.as_ref())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.forwards.iter().map(|(_, upstream)| upstream).chain(&self.usual)
    }
}
