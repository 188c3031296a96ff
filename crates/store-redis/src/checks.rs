//! What about a server would break the promise, looked at once when a store is opened.

use std::fmt;

use redis::Value;

use crate::fault::Fault;
use crate::link::{Link, Node};
use crate::open_error::OpenError;

/// Something about the server by which records may be lost.
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
    /// A restart loses what came after the last snapshot.
    SnapshotsOnly,
    /// The user may not ask the server about itself.
    Unchecked,
}

impl Concern {
    /// Whether [`strict`](crate::Builder::strict) refuses it. Snapshots are what most people mean by persistence.
    fn is_refused(&self) -> bool {
        !matches!(self, Self::SnapshotsOnly)
    }
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
                "only snapshots are written to disk, so that a restart forgets the last calls: set appendonly yes",
            ),
            Self::Unchecked => f.write_str("the user may not ask for its settings: allow the user +info"),
        }
    }
}

/// Looks at every server that holds records: warns, or refuses if `strict`.
pub(crate) async fn check(link: &Link, strict: bool) -> Result<(), Checked> {
    let mut concerns = Vec::new();
    for node in link.nodes().await? {
        let info = match link.send_to(&node, &redis::cmd("INFO")).await {
            Ok(info) => text(info),
            Err(fault) if fault.cause().code() == Some("NOPERM") => {
                concerns.push(Concern::Unchecked);
                break;
            }
            Err(fault) => return Err(fault.into()),
        };
        fits(&info, &node)?;
        let mut config = redis::cmd("CONFIG");
        config.arg("GET").arg("save");
        // Hosted servers refuse CONFIG. They do make snapshots.
        let saves = link.send_to(&node, &config).await.map_or(Some(true), |reply| saves(&reply));
        for concern in judge(&info, saves != Some(false)) {
            if !concerns.contains(&concern) {
                concerns.push(concern);
            }
        }
    }
    if strict && concerns.iter().any(Concern::is_refused) {
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

fn judge(info: &str, saves: bool) -> Vec<Concern> {
    let mut concerns = Vec::new();
    if let Some(policy) = field(info, "maxmemory_policy").filter(|policy| *policy != "noeviction") {
        concerns.push(Concern::Eviction { policy: policy.to_owned() });
    }
    if field(info, "aof_enabled") == Some("0") {
        concerns.push(if saves { Concern::SnapshotsOnly } else { Concern::NoPersistence });
    }
    concerns
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn text(reply: Value) -> String {
    redis::from_redis_value(reply).unwrap_or_default()
}

/// Whether `CONFIG GET save` names a rule.
fn saves(reply: &Value) -> Option<bool> {
    let (_, rules): (String, String) = redis::from_redis_value(reply.clone()).ok()?;
    Some(!rules.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAFE: &str =
        "# Server\r\nredis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nrole:master\r\n";

    #[test]
    fn a_server_that_keeps_what_it_was_told_is_of_no_concern() {
        assert_eq!(judge(SAFE, false), []);
        assert!(fits(SAFE, &Node::Only).is_ok());
    }

    #[test]
    fn eviction_and_missing_persistence_are_concerns_that_say_what_to_set() {
        let info = SAFE.replace("noeviction", "allkeys-lru").replace("aof_enabled:1", "aof_enabled:0");
        let concerns = judge(&info, false);
        let said: String = concerns.iter().map(ToString::to_string).collect();
        assert!(
            said.contains("set maxmemory-policy noeviction") && said.contains("set appendonly yes"),
            "{said}"
        );
        assert!(concerns.iter().all(Concern::is_refused));
        assert_eq!(judge(&SAFE.replace("aof_enabled:1", "aof_enabled:0"), true), [Concern::SnapshotsOnly]);
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
