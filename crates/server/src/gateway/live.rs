//! What a reload replaces: the layer with its routes, and the upstreams.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use onlyonce::http::{IdempotencyLayer, Ids, KeyFrom, Timings};
use onlyonce::{Idempotency, Mode};
use tokio::sync::Semaphore;

use super::ask;
use super::headers::Peer;
use super::names::Names;
use super::resources::Resources;
use super::routing::Routing;
use super::serve::Serving;
use super::tokens::Issuer;
use crate::config::{Config, Limits, Rules};
use crate::failure::Failure;

/// The gateway as it is configured now. Requests keep the one that they began with.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) layer: IdempotencyLayer,
    pub(crate) routing: Arc<Routing>,
    pub(crate) limits: Limits,
    pub(crate) trust_forwarded: bool,
    /// What connections are served with.
    pub(crate) serving: Arc<Serving>,
    /// The headers that count.
    pub(crate) names: Arc<Names>,
    /// For requests that may be silent for as long as they like.
    pub(crate) quiet: Arc<Semaphore>,
    issuer: Issuer,
}

/// What a question is like, and how much its answer may be.
#[derive(Debug, Clone)]
pub(crate) struct Limit {
    pub(crate) bytes: usize,
    pub(crate) patience: Duration,
    pub(crate) peer: Peer,
    /// Keys are numbers.
    pub(crate) numbered: bool,
}

impl Live {
    pub(crate) fn new(
        config: &Config,
        once: &Idempotency,
        resources: &Resources,
        before: Option<&Self>,
    ) -> Result<Self, Failure> {
        let issuer = Issuer::new(config, once, before.map(|before| &before.issuer))?;
        let routing =
            Arc::new(Routing::new(config, &resources.sockets, before.map(|before| &*before.routing)));
        let options = |rules: &Rules| {
            let mut options = rules.without_question();
            // Questions come from the gateway itself.
            let peer = Peer::new(IpAddr::V4(Ipv4Addr::LOCALHOST), false);
            let numbered = matches!(options.key, KeyFrom::Sequence(_));
            let (bytes, patience) = (options.max_response, config.limits.response_timeout);
            let limit = Limit { bytes, patience, peer, numbered };
            options.recover = rules.ask.clone().map(|path| ask::hook(Arc::clone(&routing), path, limit));
            options.token = issuer.rule(rules);
            options
        };
        let builder = IdempotencyLayer::builder(once.clone(), Arc::clone(&config.scope).finder());
        let builder =
            builder.options(options(&config.rules)).methods(config.methods.clone()).timings(Timings::On);
        let builder = config
            .routes
            .iter()
            .fold(builder, |builder, route| builder.route(&route.pattern, options(&route.rules)));
        // For routes that need no token it is a key that the server chose.
        let builder =
            builder.tokens(issuer.tokens(Mode::Replay)).ids(Ids::uuid()).memory(resources.memory.clone());
        let layer = builder.build().map_err(|error| Failure::usage(error.to_string()))?;
        let serving = Arc::new(Serving::new(config));
        let (limits, trust_forwarded) = (config.limits, config.trust_forwarded);
        let rules = config.routes.iter().map(|route| &route.rules).chain([&config.rules]);
        let names = Arc::new(Names::new(&config.scope, rules));
        let quiet = Arc::clone(&resources.quiet);
        Ok(Self { layer, routing, limits, trust_forwarded, serving, names, quiet, issuer })
    }
}
