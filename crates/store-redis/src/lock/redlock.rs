//! RedLock: a lock that most of several independent servers grant.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::future::{join_all, select_all};
use futures_util::stream::FuturesUnordered;
use onlyonce_core::lock::{Acquired, LockBackend, LockName, NoFence, Release, Renewed};
use onlyonce_core::{Owner, StoreError};

use super::names::Names;
use super::node::{Kept, Node, Vote};
use super::votes::{self, Votes};
use crate::builder::single;
use crate::keys::Keys;
use crate::open_error::OpenError;

/// How long to wait for a release that might not be heard of.
const QUIET: Duration = Duration::from_secs(1);

/// Locks on several Redis that know nothing of each other: held if most of them grant it in time. For
/// [`Locks`](onlyonce_core::lock::Locks), whose guards then have no `fence()`: the highest number that most nodes have seen can
/// fall from one majority to the next, so that there is none to give.
///
/// It goes on while fewer than half of the nodes are down, slow, or restarted. A node that restarted empty is repaired by the
/// next renewal. If half of the nodes restart empty within one ttl, two holders are possible: let nodes write to disk
/// (`appendonly yes`, `appendfsync always`), or start them again only after the longest ttl.
///
/// ```no_run
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// use onlyonce_core::lock::Locks;
/// use onlyonce_store_redis::RedLock;
/// let locks = Locks::new(RedLock::open(["redis://a", "redis://b", "redis://c"]).await?);
/// locks.key("nightly").run(|held| async move { println!("{:?} are certain", held.remaining()) }).await?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// # use onlyonce_core::lock::Locks;
/// # use onlyonce_store_redis::RedLock;
/// let locks = Locks::new(RedLock::open(["redis://a", "redis://b", "redis://c"]).await?);
/// locks.key("nightly").run(|held| async move { println!("{}", held.fence()) }).await?;
/// # Ok(()) }
/// ```
pub struct RedLock {
    nodes: Vec<Arc<Node>>,
    address: String,
}

/// Settings of a [`RedLock`].
#[must_use]
pub struct RedLockBuilder {
    urls: Vec<String>,
    prefix: String,
    node_timeout: Duration,
}

impl RedLock {
    /// Opens locks on these servers, with the default settings.
    ///
    /// # Errors
    /// See [`RedLockBuilder::open`].
    pub async fn open(urls: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, OpenError> {
        Self::builder(urls).open().await
    }

    /// Settings for locks on these servers, each by a URL of its own; three at least, five as a rule.
    pub fn builder(urls: impl IntoIterator<Item = impl Into<String>>) -> RedLockBuilder {
        let urls = urls.into_iter().map(Into::into).collect();
        RedLockBuilder { urls, prefix: "onlyonce:".into(), node_timeout: Duration::from_millis(250) }
    }

    fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// Frees it everywhere, and waits for the answers of those that had granted it.
    async fn undo(&self, name: &LockName, owner: Owner, granted: &[usize]) {
        let (mut theirs, others) = (FuturesUnordered::new(), FuturesUnordered::new());
        for (n, node) in self.nodes.iter().enumerate() {
            let (node, name) = (Arc::clone(node), name.clone());
            // What can't be freed runs out by itself.
            let release = Box::pin(async move { drop(node.release(&name, &owner).await) });
            if granted.contains(&n) { theirs.push(release) } else { others.push(release) }
        }
        tokio::spawn(others.collect::<()>());
        while theirs.next().await.is_some() {}
    }
}

impl RedLockBuilder {
    /// What the names of all keys begin with; `onlyonce:` by default. No braces.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long to wait for one node, to connect and to answer; 250 ms by default. Keep it far below the ttl: what the nodes
    /// take is time in which the lock is not certain any more.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Connects; a minority of the nodes may be down.
    ///
    /// # Errors
    /// If a URL can't be used, there are fewer than three different servers, or most of them are not reached.
    pub async fn open(self) -> Result<RedLock, OpenError> {
        let keys = Keys::new(self.prefix).ok_or(OpenError::Prefix)?;
        let (mut nodes, mut addresses) = (Vec::new(), Vec::new());
        for url in &self.urls {
            let (finder, address) = single(url)?;
            if addresses.contains(&address) {
                return Err(OpenError::url(
                    "RedLock needs different servers, and two URLs name the same one",
                ));
            }
            let names = Names::new(keys.prefix(), keys.channel());
            nodes.push(Node::new(finder, names, self.node_timeout));
            addresses.push(address);
        }
        if nodes.len() < 3 {
            return Err(OpenError::url(
                "RedLock needs at least three servers that know nothing of each other",
            ));
        }
        let redlock = RedLock { nodes, address: addresses.join(",") };
        let pings = join_all(redlock.nodes.iter().map(|node| node.ping())).await;
        let mut down: Vec<_> = pings
            .into_iter()
            .zip(&addresses)
            .filter_map(|(ping, address)| Some((address, ping.err()?)))
            .collect();
        for (address, cause) in &down {
            tracing::warn!(
                address,
                cause = cause as &dyn std::error::Error,
                "a node of RedLock is not reached"
            );
        }
        if redlock.nodes.len() - down.len() < redlock.quorum()
            && let Some((address, source)) = down.pop()
        {
            return Err(OpenError::Connect { address: address.clone(), source });
        }
        Ok(redlock)
    }
}

#[async_trait]
impl LockBackend for RedLock {
    type Proof = NoFence;

    async fn acquire(
        &self,
        name: &LockName,
        owner: &Owner,
        span: Duration,
    ) -> Result<Acquired<NoFence>, StoreError> {
        let quorum = self.quorum();
        let granted = |votes: &Votes<Vote>| votes.count(|vote| *vote == Vote::Granted);
        let claim = |node: Arc<Node>| {
            let (name, owner) = (name.clone(), *owner);
            async move { node.claim(&name, &owner, span).await }
        };
        let votes = votes::ask(&self.nodes, claim, |votes| {
            let granted = granted(votes);
            granted >= quorum || granted + votes.open() < quorum
        })
        .await;
        if granted(&votes) >= quorum {
            return Ok(Acquired::Granted(NoFence));
        }
        let theirs: Vec<_> =
            votes.answers.iter().filter(|(_, vote)| *vote == Vote::Granted).map(|(n, _)| *n).collect();
        self.undo(name, *owner, &theirs).await;
        let left = votes.answers.iter().filter_map(|(_, vote)| match vote {
            Vote::Taken(left) => Some(*left),
            Vote::Granted => None,
        });
        match left.min() {
            // Unless more of them failed than may: then nobody could have it, taken or not.
            Some(free_in) if votes.failures.len() <= self.nodes.len() - quorum => {
                Ok(Acquired::Taken { free_in })
            }
            _ => Err(votes.failed("acquire")),
        }
    }

    /// Held on if most nodes have held it all the time. Those that were empty are given it again.
    async fn renew(&self, name: &LockName, owner: &Owner, span: Duration) -> Result<Renewed, StoreError> {
        let quorum = self.quorum();
        let extended = |votes: &Votes<Kept>| votes.count(|kept| *kept == Kept::Extended);
        let keep = |node: Arc<Node>| {
            let (name, owner) = (name.clone(), *owner);
            async move { node.keep(&name, &owner, span).await }
        };
        let votes = votes::ask(&self.nodes, keep, |votes| {
            let extended = extended(votes);
            extended >= quorum || extended + votes.open() < quorum
        })
        .await;
        if extended(&votes) >= quorum {
            return Ok(Renewed::Renewed);
        }
        if extended(&votes) + votes.open() + votes.failures.len() >= quorum {
            // Those that did not answer may still have it.
            return Err(votes.failed("renew"));
        }
        let theirs: Vec<_> =
            votes.answers.iter().filter(|(_, kept)| *kept != Kept::Others).map(|(n, _)| *n).collect();
        self.undo(name, *owner, &theirs).await;
        Ok(Renewed::Lost)
    }

    async fn release(&self, name: &LockName, owner: &Owner) -> Result<Release, StoreError> {
        let quorum = self.quorum();
        let count = |votes: &Votes<Release>, what| votes.count(|released| *released == what);
        let release = |node: Arc<Node>| {
            let (name, owner) = (name.clone(), *owner);
            async move { node.release(&name, &owner).await }
        };
        let votes = votes::ask(&self.nodes, release, |votes| count(votes, Release::Released) >= quorum).await;
        if count(&votes, Release::Released) >= quorum {
            return Ok(Release::Released);
        }
        if votes.answers.len() < quorum {
            return Err(votes.failed("release"));
        }
        let taken_over = count(&votes, Release::TakenOver) > 0;
        Ok(if taken_over { Release::TakenOver } else { Release::AlreadyExpired })
    }

    async fn freed(&self, name: &LockName, timeout: Duration) {
        let wait = async {
            let freed = select_all(self.nodes.iter().map(|node| {
                let mut freed = Box::pin(node.freed(name).notified());
                // Enlisted before the look, so that a release after it is heard and one before it is seen.
                freed.as_mut().enable();
                freed
            }));
            let look = |node: Arc<Node>| {
                let name = name.clone();
                async move { node.left(&name).await }
            };
            let quorum = self.quorum();
            let votes = votes::ask(&self.nodes, look, |votes| votes.open() == 0).await;
            if votes.count(Option::is_none) >= quorum {
                return;
            }
            let left = votes.answers.iter().filter_map(|(_, left)| *left).min().unwrap_or(QUIET);
            let jitter = Duration::from_millis(rand::random_range(1..=10));
            tokio::select! {
                _ = freed => {}
                () = tokio::time::sleep(left.min(QUIET) + jitter) => {}
            }
        };
        let _ = tokio::time::timeout(timeout, wait).await;
    }

    /// All but what the clocks of the nodes may drift apart, and what it takes them to expire a key.
    fn validity(&self, ttl: Duration) -> Duration {
        ttl.saturating_sub(ttl / 100 + Duration::from_millis(2))
    }
}

impl fmt::Debug for RedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedLock").field("address", &self.address).finish_non_exhaustive()
    }
}

impl fmt::Debug for RedLockBuilder {
    // Without the URLs: they hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedLockBuilder").field("nodes", &self.urls.len()).finish_non_exhaustive()
    }
}
