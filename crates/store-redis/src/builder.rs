//! Settings of a store, and its opening.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::cluster_async::ClusterConnection;
use redis::{Client, ConnectionInfo, RedisError};

use crate::checks::{self, Checked};
use crate::index::Swept;
use crate::keys::Keys;
use crate::link::{Cluster, Finder, Given, Link, Sentinels, Single};
use crate::open_error::OpenError;
use crate::replicas::Replicas;
use crate::server_time::ServerTime;
use crate::store::RedisStore;
use crate::target::Target;
use crate::wakes::Wakes;

/// How to open a [`RedisStore`]; made by [`RedisStore::builder`] and [`RedisStore::from_connection`].
///
/// ```no_run
/// # async fn open() -> Result<(), onlyonce_store_redis::OpenError> {
/// use onlyonce_store_redis::RedisStore;
/// let store = RedisStore::builder("redis://localhost").prefix("shop:once:").strict().open().await?;
/// # Ok(()) }
/// ```
#[must_use]
pub struct Builder {
    source: Source,
    prefix: String,
    response_timeout: Duration,
    connect_timeout: Duration,
    strict: bool,
    replicas: Option<Replicas>,
}

enum Source {
    Url(String),
    Given(Link),
}

impl Builder {
    pub(crate) fn url(url: String) -> Self {
        Self::new(Source::Url(url))
    }

    pub(crate) fn connection(connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> Self {
        Self::new(Source::Given(Link::Given(Given::new(connection))))
    }

    pub(crate) fn cluster(connection: ClusterConnection) -> Self {
        Self::new(Source::Given(Link::Cluster(Cluster::given(connection))))
    }

    fn new(source: Source) -> Self {
        let (response_timeout, connect_timeout) = (Duration::from_secs(2), Duration::from_secs(2));
        let prefix = "onlyonce:".into();
        Self { source, prefix, response_timeout, connect_timeout, strict: false, replicas: None }
    }

    /// What the names of all keys begin with; `onlyonce:` by default. No braces. Two stores share records if they share
    /// server, database and prefix.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long to wait for a reply; 2 s by default. After it a call may or may not have happened, and the engine repeats
    /// it: keep it well above what the server takes on a bad day, and below a third of the lease. A connection of your own
    /// keeps its own.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// How long to wait for a connection; 2 s by default. A connection of your own keeps its own.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Acknowledges a begin or a settlement only when `count` replicas have it (by `WAIT`), so that a failover to one of them
    /// does not lose it. Off by default: it costs a second round trip, and the time of the slowest of those replicas.
    ///
    /// Where they do not have it within `patience`, the call is [`Ambiguous`](onlyonce_core::ErrorKind::Ambiguous): the engine
    /// repeats it, then gives up on a begin (nothing runs, and what was written is given back), and goes on with a settlement in
    /// the background. While replicas are missing, calls therefore take a few times `patience`, and nothing new runs.
    ///
    /// This narrows what a failover can lose and does not close it: a replica that was not among those can still be chosen.
    /// Name as many as there are, or let the fence at the resource close the rest.
    pub fn replicas(mut self, count: u32, patience: Duration) -> Self {
        self.replicas = (count > 0).then_some(Replicas { count, patience });
        self
    }

    /// Refuses a server that may lose records (see [`Concern`](crate::Concern)), instead of a warning in the log.
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// As [`open`](Self::open), for [locks](crate::RedisLocks).
    ///
    /// # Errors
    /// See [`OpenError`], whose text says what to do.
    #[cfg(feature = "locks")]
    pub async fn open_locks(self) -> Result<crate::RedisLocks, OpenError> {
        Ok(self.open().await?.locks())
    }

    /// Connects, looks at the server, and listens for changes.
    ///
    /// # Errors
    /// See [`OpenError`], whose text says what to do.
    ///
    /// # Cancel safety
    /// Nothing is left behind.
    pub async fn open(self) -> Result<RedisStore, OpenError> {
        let keys = Keys::new(self.prefix).ok_or(OpenError::Prefix)?;
        // A reply may have to wait until replicas were waited for.
        let waited = self.replicas.map_or(Duration::ZERO, |replicas| replicas.patience);
        let (connect, response) = (self.connect_timeout, self.response_timeout.saturating_add(waited));
        let (link, listeners, address) = match self.source {
            Source::Given(link) => (link, Vec::new(), "the given connection".to_owned()),
            Source::Url(url) => match Target::parse(&url)? {
                Target::Single(info) => {
                    let address = info.addr().to_string();
                    let finder = at(*info, &address)?;
                    let single = Single::new(finder.clone(), connect, response);
                    (Link::Single(Box::new(single)), vec![finder], address)
                }
                Target::Sentinel { sentinels, name, primary } => {
                    let address = format!("{}/{name}", named(&sentinels));
                    let sentinels = Sentinels::new(sentinels, name, *primary, connect);
                    let sentinels = sentinels.map_err(|cause| not_reached(&address, cause))?;
                    let finder = Finder::Sentinels(Arc::new(sentinels));
                    let single = Single::new(finder.clone(), connect, response);
                    (Link::Single(Box::new(single)), vec![finder], address)
                }
                Target::Cluster(infos) => {
                    let address = named(&infos);
                    let listeners = infos.iter().cloned().map(|info| at(info, &address));
                    let listeners = listeners.collect::<Result<_, _>>()?;
                    let cluster = Cluster::connect(infos, connect, response).await;
                    let cluster = cluster.map_err(|cause| not_reached(&address, cause))?;
                    (Link::Cluster(cluster), listeners, address)
                }
            },
        };
        checks::check(&link, self.strict).await.map_err(|ended| match ended {
            Checked::Refused(error) => error,
            Checked::Failed(fault) => not_reached(&address, fault.cause().clone()),
        })?;
        let wakes = Wakes::listen(listeners, keys.channel(), connect);
        let (link, wakes) = (Arc::new(link), Arc::new(wakes));
        let (swept, time) = (Swept::default(), ServerTime::default());
        Ok(RedisStore { link, keys, wakes, replicas: self.replicas, swept, time, address })
    }
}

/// The way to one server, and its address without user and password.
#[cfg(feature = "locks")]
pub(crate) fn single(url: &str) -> Result<(Finder, String), OpenError> {
    match Target::parse(url)? {
        Target::Single(info) => {
            let address = info.addr().to_string();
            Ok((at(*info, &address)?, address))
        }
        _ => Err(OpenError::url("a node of RedLock is one server, named by redis:// or rediss://")),
    }
}

/// Addresses alone, without user and password.
fn named(infos: &[ConnectionInfo]) -> String {
    let names: Vec<_> = infos.iter().map(|info| info.addr().to_string()).collect();
    names.join(",")
}

fn at(info: ConnectionInfo, address: &str) -> Result<Finder, OpenError> {
    Client::open(info).map(|client| Finder::At(Box::new(client))).map_err(|cause| not_reached(address, cause))
}

fn not_reached(address: &str, source: RedisError) -> OpenError {
    OpenError::Connect { address: address.to_owned(), source }
}

impl fmt::Debug for Builder {
    // Without the URL and the connection: they hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("prefix", &self.prefix)
            .field("strict", &self.strict)
            .finish_non_exhaustive()
    }
}
