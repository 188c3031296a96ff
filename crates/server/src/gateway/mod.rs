//! `onlyonce gateway`: a reverse proxy that makes the writes of a service in any language idempotent.
//!
//! ```text
//!  caller ─▶ serve ─▶ front ─▶ the layer of onlyonce-http ─▶ proxy ─▶ upstream ─▶ link ─▶ the service
//!            limits   own paths  all that is promised         headers   pool
//! ```
//!
//! The layer is the one that Rust services use themselves. The proxy inside of it only relays, and says what it knows:
//! never sent (released), answered, or sent and broken (unknown).

mod answer;
mod ask;
mod caller_body;
mod claims;
mod cookies;
mod descriptors;
mod flow;
mod framing;
mod front;
mod headers;
mod hops;
mod idle;
pub(crate) mod jwt;
mod link;
mod live;
mod multiplexed;
mod names;
mod outgoing;
mod places;
mod proxy;
mod resources;
mod routing;
pub(crate) mod scope;
pub(crate) mod serve;
mod shared;
mod silence;
mod sockets;
mod streams;
mod tail;
pub(crate) mod tls;
mod tokens;
mod upstream;
mod wire;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use onlyonce::{Drained, Idempotency, Inspect};
use tokio::net::TcpListener;
use tokio::signal::unix::Signal;
use tokio::sync::watch;

use crate::admin::{self, Admin, Timed};
use crate::cli::GatewayArguments;
use crate::config::{Changes, Config, Typed};
use crate::failure::Failure;
use crate::say::{self, announce, say};
use crate::shutdown;
use crate::stores::{self, Purpose};
use crate::variable;
pub(crate) use front::{Gate, OWN};
pub(crate) use headers::Peer;
use live::Live;
pub(crate) use names::folded;
pub(crate) use places::Places;
use resources::Resources;
use serve::Server;
pub(crate) use tail::{Tail, Unread};
pub(crate) use wire::Doings;

/// How often connections to upstreams are tidied up.
const TIDY: Duration = Duration::from_secs(10);

pub(crate) async fn run(arguments: GatewayArguments) -> Result<(), Failure> {
    let typed = arguments.typed;
    let loaded = load(&typed);
    if arguments.check {
        return check(loaded);
    }
    let config = loaded.map_err(|wrong| Failure::usage(wrong.problems.to_string()))?;
    warn(&config);
    // Before anybody can know that we are there: a signal without a handler would end the process.
    let (terminated, reloads) = (shutdown::asked_for(), shutdown::reloads());
    let listener = listen(config.listen, "--listen").await?;
    let admin_listener = match config.admin {
        Some(address) => Some(listen(address, "--admin").await?),
        None => None,
    };
    let store: Arc<dyn Inspect> =
        Arc::new(Timed::new(stores::open(&config.store, Purpose::Serve(config.serving())).await?)?);
    let once = engine(&config, Arc::clone(&store))?;
    let (descriptors, _) = descriptors::share_out(config.limits.connections);
    let resources = Resources::new(&config.limits, descriptors);
    let live = Live::new(&config, &once, &resources, None)?;
    let gate = Arc::new(Gate::new(live, resources));
    let admin = Admin::new(&config, Arc::clone(&store), once.clone(), Arc::clone(&gate))?;
    // Also where nobody can ask for them: measurements that are not taken in pile up.
    tokio::spawn(admin::keep_up(Arc::clone(&admin)));
    tokio::spawn(admin::watch(store, longest_lease(&config)));
    greet(&config, &listener, admin_listener.as_ref(), &admin);
    if let Some(listener) = admin_listener {
        tokio::spawn(admin::serve(listener, Arc::clone(&admin)));
    }
    let (leave, left) = watch::channel(false);
    let places = Arc::clone(&gate.resources.places);
    let server = Server { listener, places, app: Arc::clone(&gate) };
    tokio::spawn(server.run(left));
    tokio::spawn(tidy(Arc::clone(&gate)));
    let reloading = Reloading { reloads, typed, once: once.clone(), gate: Arc::clone(&gate), admin, config };
    tokio::select! {
        () = terminated => {}
        () = reloading.run() => {}
    }
    let limit = gate.live().limits.drain;
    drain(&gate, &once, leave, limit).await;
    Ok(())
}

fn load(typed: &Typed) -> Result<Config, Box<crate::config::Unusable>> {
    Config::load(typed, variable::find)
}

/// Tells what is valid and probably not meant.
fn warn(config: &Config) {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    if let (_, Some(warning)) = descriptors::share_out(config.limits.connections) {
        tracing::warn!("{warning}");
    }
    for warning in
        crate::config::unknown_variables(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))
    {
        tracing::warn!("{warning}");
    }
}

fn check(loaded: Result<Config, Box<crate::config::Unusable>>) -> Result<(), Failure> {
    match loaded {
        Ok(config) => {
            warn(&config);
            say!("{}\n# the configuration is valid", config.shown);
            Ok(())
        }
        Err(wrong) => {
            say!("{}", wrong.shown);
            let count = wrong.problems.0.len();
            Err(Failure::usage(format!(
                "{count} problem{}\n{}",
                if count == 1 { "" } else { "s" },
                wrong.problems
            )))
        }
    }
}

fn engine(config: &Config, store: Arc<dyn Inspect>) -> Result<Idempotency, Failure> {
    let builder = Idempotency::builder_shared(store);
    let settings = config.rules.options.settings.clone().unwrap_or_default();
    builder.settings(settings).build().map_err(|error| Failure::usage(error.to_string()))
}

fn longest_lease(config: &Config) -> Duration {
    let all = config.routes.iter().map(|route| &route.rules).chain([&config.rules]);
    all.filter_map(|rules| Some(rules.options.settings.as_ref()?.lease)).max().unwrap_or_default()
}

async fn listen(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind(address).await;
    let bound = bound.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => Failure::new(format!(
            "{address} is in use by another program; choose another address with {flag}"
        )),
        ErrorKind::PermissionDenied => Failure::new(format!(
            "{address} may not be used without special rights; choose a port above 1023 with {flag}"
        )),
        _ => Failure::because(&format!("can't listen on {address} ({flag})"), &error),
    });
    bound.map_err(Failure::into_usage)
}

/// Printed for people and for whoever started this and waits for it to be ready.
fn greet(config: &Config, listener: &TcpListener, admin_listener: Option<&TcpListener>, admin: &Admin) {
    let address = |listener: &TcpListener| {
        listener.local_addr().map_or_else(|_| "?".into(), |address| address.to_string())
    };
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    // Whoever waits for the greeting finds in the log what was to be said before it.
    say::catch_up();
    announce!("onlyonce gateway: {scheme}://{}", address(listener));
    if let Some(target) = &config.target {
        announce!("  upstream  {}", target.authority);
    }
    announce!("  store     {}", stores::shown(&config.store));
    announce!("  scope     {}", config.scope);
    if let Some(listener) = admin_listener {
        announce!("onlyonce admin: http://{}", address(listener));
        if let Some(file) = admin.token_file() {
            announce!("  token     in {}", file.display());
        }
    }
}

async fn tidy(gate: Arc<Gate>) {
    loop {
        tokio::time::sleep(TIDY).await;
        for upstream in gate.live().routing.all() {
            upstream.tidy();
        }
    }
}

struct Reloading {
    reloads: Option<Signal>,
    typed: Typed,
    once: Idempotency,
    gate: Arc<Gate>,
    admin: Arc<Admin>,
    /// What is in force.
    config: Config,
}

impl Reloading {
    /// Reloads at every SIGHUP, for ever.
    async fn run(mut self) {
        let Some(mut asked) = self.reloads.take() else { return std::future::pending().await };
        while asked.recv().await.is_some() {
            match self.reload() {
                Ok(changes) => {
                    for warning in changes.warnings() {
                        tracing::warn!("{warning}");
                    }
                    tracing::info!("the configuration was reloaded: {changes}");
                }
                Err(why) => tracing::error!("the new configuration is wrong, and the old one stays:\n{why}"),
            }
        }
    }

    /// Everything that can fail comes first: a reload changes all or nothing.
    fn reload(&mut self) -> Result<Changes, String> {
        let reloaded = self.config.reload(&self.typed, variable::find);
        let (config, changes) = reloaded.map_err(|wrong| wrong.problems.to_string())?;
        let live = Live::new(&config, &self.once, &self.gate.resources, Some(&self.gate.live()));
        let live = live.map_err(|error| error.to_string())?;
        self.admin.reload(&config).map_err(|error| error.to_string())?;
        self.gate.replace(live);
        self.config = config;
        warn(&self.config);
        Ok(changes)
    }
}

/// Finishes what has begun, refuses what is new, and leaves.
async fn drain(gate: &Gate, once: &Idempotency, leave: watch::Sender<bool>, limit: Duration) {
    announce!("finishing what is under way, for at most {}…", crate::config::units::show_duration(limit));
    gate.drain();
    leave.send_replace(true);
    let finished = tokio::time::timeout(limit, async {
        // First the connections: a request whose body still comes has not reached the engine yet.
        while leave.receiver_count() > 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        once.drain(limit).await
    });
    let drained = match finished.await {
        Ok(drained) => drained,
        Err(_) => once.drain(Duration::ZERO).await,
    };
    match drained {
        Drained::Everything => announce!("done: every call is settled"),
        Drained::Left(calls) => {
            announce!("{calls} calls were still running; retries of them will be told \"unknown\"")
        }
    }
}
