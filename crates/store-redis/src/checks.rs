//! What about a server would break the promise, looked at once when a store is opened.

use std::fmt;

use redis::Value;

use crate::fault::Fault;
use crate::link::{Link, Node};
use crate::open_error::OpenError;

/// Something about the server by which records may be lost. [`strict`](crate::Builder::strict) refuses each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Concern {
    /// When memory is short the server drops records that have not expired.
    Eviction {
        /// Its `maxmemory-policy`.
        policy: String,
    },
    /// A restart loses everything.
    NoPersistence,
    /// A restart loses what came after the last snapshot, or everything where the server does not say whether it makes any.
    SnapshotsOnly,
    /// The log of writes is left to the system to be put on disk: a crash of the machine loses what came in half a minute.
    NotSynced,
    /// The user may not ask the server about itself, or the server does not say what was asked.
    Unchecked,
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eviction { policy } => {
                write!(f, "maxmemory-policy is {policy}, which drops live records: set maxmemory-policy noeviction")
            }
            Self::NoPersistence => {
                f.write_str("nothing is written to disk, so that a restart forgets every call: set appendonly yes")
            }
            Self::SnapshotsOnly => f.write_str(
                "at most snapshots are written to disk, so that a restart forgets the last calls: set appendonly yes",
            ),
            Self::NotSynced => f.write_str(
                "appendfsync is no, so that a crash of the machine forgets the calls of half a minute: set appendfsync always, or \
                 everysec",
            ),
            Self::Unchecked => f.write_str(
                "it does not say whether it evicts and what it writes to disk: allow the user +info and +config|get",
            ),
        }
    }
}

/// Looks at every server that holds records: warns, or refuses if `strict`.
pub(crate) async fn check(link: &Link, strict: bool) -> Result<(), Checked> {
    let mut concerns = Vec::new();
    for node in link.nodes().await? {
        let info = match link.send_to(&node, &redis::cmd("INFO")).await {
            Ok(info) => text(info),
            // Nothing is known, which is a concern of its own.
            Err(fault) if is_refusal(&fault) => String::new(),
            Err(fault) => return Err(fault.into()),
        };
        fits(&info, &node)?;
        let (save, appendfsync) =
            (setting(link, &node, "save").await?, setting(link, &node, "appendfsync").await?);
        for concern in judge(&info, save.as_deref(), appendfsync.as_deref()) {
            if !concerns.contains(&concern) {
                concerns.push(concern);
            }
        }
    }
    if strict && !concerns.is_empty() {
        return Err(Checked::Refused(OpenError::Unsafe { concerns }));
    }
    for concern in &concerns {
        tracing::warn!(%concern, "this Redis may lose records, so that calls could run twice");
    }
    Ok(())
}

/// Why a check ended early.
pub(crate) enum Checked {
    Failed(Fault),
    Refused(OpenError),
}

impl From<Fault> for Checked {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
    }
}

fn fits(info: &str, node: &Node) -> Result<(), Checked> {
    let refuse = |why| Err(Checked::Refused(OpenError::WrongServer { why }));
    if *node == Node::Only && field(info, "cluster_enabled") == Some("1") {
        return refuse("it is a node of a Cluster: name it by redis-cluster://host:port,host:port");
    }
    // Of a Cluster it was a primary a moment ago: it is failing over, and its successor is followed.
    if *node == Node::Only && field(info, "role") == Some("slave") {
        return refuse("it is a read-only replica: name its primary");
    }
    let mut version = field(info, "redis_version").unwrap_or_default().split('.').map(str::parse::<u32>);
    if let (Some(Ok(major)), Some(Ok(minor))) = (version.next(), version.next())
        && (major, minor) < (6, 2)
    {
        return refuse("it is older than version 6.2: update it");
    }
    Ok(())
}

/// The user may not ask it, or the command has another name.
fn is_refusal(fault: &Fault) -> bool {
    !matches!(fault, Fault::NotSent(_)) && matches!(fault.cause().code(), Some("NOPERM" | "ERR"))
}

/// A setting of the server; `None` where it does not say, as hosted ones do not.
async fn setting(link: &Link, node: &Node, name: &str) -> Result<Option<String>, Fault> {
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg(name);
    match link.send_to(node, &config).await {
        Ok(reply) => Ok(redis::from_redis_value(reply).ok().map(|(_, value): (String, String)| value)),
        Err(fault) if is_refusal(&fault) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// What is of concern. What the server does not say is not taken for good: where it appends to a log, that is all that is needed.
fn judge(info: &str, save: Option<&str>, appendfsync: Option<&str>) -> Vec<Concern> {
    let mut concerns = Vec::new();
    match field(info, "maxmemory_policy") {
        Some("noeviction") => {}
        Some(policy) => concerns.push(Concern::Eviction { policy: policy.to_owned() }),
        None => concerns.push(Concern::Unchecked),
    }
    match (field(info, "aof_enabled"), save) {
        (Some("1"), _) if appendfsync == Some("no") => concerns.push(Concern::NotSynced),
        (Some("1"), _) => {}
        (Some(_), Some("")) => concerns.push(Concern::NoPersistence),
        (Some(_), _) => concerns.push(Concern::SnapshotsOnly),
        (None, _) if !concerns.contains(&Concern::Unchecked) => concerns.push(Concern::Unchecked),
        (None, _) => {}
    }
    concerns
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn text(reply: Value) -> String {
    redis::from_redis_value(reply).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAFE: &str =
        "# Server\r\nredis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nrole:master\r\n";

    #[test]
    fn a_server_that_keeps_what_it_was_told_is_of_no_concern() {
        for (save, appendfsync) in
            [(Some(""), Some("everysec")), (Some("3600 1"), Some("always")), (None, None)]
        {
            assert_eq!(judge(SAFE, save, appendfsync), []);
        }
        assert!(fits(SAFE, &Node::Only).is_ok());
    }

    #[test]
    fn eviction_and_missing_persistence_are_concerns_that_say_what_to_set() {
        let info = SAFE.replace("noeviction", "allkeys-lru").replace("aof_enabled:1", "aof_enabled:0");
        let concerns = judge(&info, Some(""), None);
        let said: String = concerns.iter().map(ToString::to_string).collect();
        assert!(
            said.contains("set maxmemory-policy noeviction") && said.contains("set appendonly yes"),
            "{said}"
        );
    }

    #[test]
    fn what_a_server_does_not_say_is_not_taken_for_good() {
        let off = SAFE.replace("aof_enabled:1", "aof_enabled:0");
        assert_eq!(judge(&off, Some("3600 1"), None), [Concern::SnapshotsOnly]);
        assert_eq!(judge(&off, None, None), [Concern::SnapshotsOnly], "CONFIG was refused");
        assert_eq!(judge("", None, None), [Concern::Unchecked]);
        assert_eq!(judge(&SAFE.replace("aof_enabled:1\r\n", ""), Some("3600 1"), None), [Concern::Unchecked]);
        assert_eq!(judge(&SAFE.replace("noeviction", "allkeys-lru"), None, Some("no")).len(), 2);
    }

    #[test]
    fn replicas_nodes_and_old_servers_are_refused() {
        for wrong in [
            SAFE.replace("role:master", "role:slave"),
            SAFE.replace("7.0.15", "6.0.16"),
            format!("{SAFE}cluster_enabled:1\r\n"),
        ] {
            assert!(matches!(fits(&wrong, &Node::Only), Err(Checked::Refused(_))), "{wrong}");
        }
    }

    #[test]
    fn a_primary_of_a_cluster_that_fails_over_meanwhile_is_no_wrong_server() {
        let node = Node::At { host: "127.0.0.1".to_owned(), port: 7000 };
        assert!(fits(&SAFE.replace("role:master", "role:slave"), &node).is_ok());
        assert!(matches!(fits(&SAFE.replace("7.0.15", "6.0.16"), &node), Err(Checked::Refused(_))));
    }
}
