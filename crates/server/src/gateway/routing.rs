//! Which upstream a request goes to.

use std::collections::HashMap;
use std::sync::Arc;

use http::request::Parts;
use onlyonce::http::spelled_path;

use super::scope::host;
use super::sockets::Sockets;
use super::upstream::{Pool, Upstream};
use crate::config::{Config, Forward, Target, name_of};

/// The upstreams, and who goes where.
#[derive(Debug)]
pub(crate) struct Routing {
    forwards: Arc<[Forward]>,
    /// Theirs, one for each.
    upstreams: Vec<Arc<Upstream>>,
    usual: Option<Arc<Upstream>>,
    by_host: bool,
    ca: Option<Vec<u8>>,
}

impl Routing {
    /// Upstreams that were known before keep their connections, if the same authorities are trusted.
    pub(crate) fn new(config: &Config, sockets: &Arc<Sockets>, before: Option<&Self>) -> Self {
        let before = before.filter(|before| before.ca == config.upstream_ca);
        let mut known: HashMap<Target, Arc<Pool>> = before
            .into_iter()
            .flat_map(Self::all)
            .map(|upstream| (upstream.target.clone(), Arc::clone(&upstream.pool)))
            .collect();
        let mut upstream = |target: &Target| {
            let pool = Arc::clone(known.entry(target.clone()).or_insert_with(|| sockets.pool()));
            let tls = Arc::clone(&config.upstream_tls);
            Arc::new(Upstream::new(target.clone(), tls, config.limits, pool, Arc::clone(sockets)))
        };
        let upstreams = config.forwards.iter().map(|forward| upstream(&forward.target)).collect();
        Self {
            forwards: Arc::clone(&config.forwards),
            upstreams,
            usual: config.target.as_ref().map(&mut upstream),
            by_host: config.forwards.iter().any(|forward| forward.host.is_some()),
            ca: config.upstream_ca.clone(),
        }
    }

    pub(crate) fn find(&self, parts: &Parts) -> Option<&Arc<Upstream>> {
        let host = if self.by_host { host(parts).map(name_of) } else { None };
        if self.forwards.is_empty() {
            return self.usual.as_ref();
        }
        let path = spelled_path(parts.uri.path());
        let matches = |forward: &Forward| forward.matches(&parts.method, host.as_deref(), &path);
        let chosen = self.forwards.iter().position(matches);
        chosen.map(|chosen| &self.upstreams[chosen]).or(self.usual.as_ref())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.upstreams.iter().chain(&self.usual)
    }
}
