//! The way to the server: sends a command, and knows of one that failed whether it was sent.

mod cluster;
mod connection;
mod finder;
mod given;
mod renewable;
mod resp;
mod sentinels;
mod single;
mod wire;

use redis::{Cmd, ErrorKind, Pipeline, RedisError, Value};

use crate::fault::Fault;
use crate::replicas::{self, Replicas};

pub(crate) use cluster::Cluster;
pub(crate) use finder::Finder;
pub(crate) use given::Given;
pub(crate) use sentinels::Sentinels;
pub(crate) use single::Single;

pub(crate) enum Link {
    /// One server, on a connection of our own.
    Single(Box<Single>),
    /// A Cluster.
    Cluster(Cluster),
    /// One server, on a connection that the user has.
    Given(Given),
}

/// A server that holds a part of the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    /// There is no other.
    Only,
    /// A primary of a Cluster.
    At { host: String, port: u16 },
}

impl Link {
    /// Sends a command, on a Cluster to where its key is.
    pub(crate) async fn send(&self, command: &Cmd) -> Result<Value, Fault> {
        match self {
            Self::Single(single) => single.send(command).await,
            Self::Cluster(cluster) => cluster.send(command).await,
            Self::Given(given) => given.send(command).await,
        }
    }

    /// Sends a command that writes, and waits for replicas. Says how many of them have it.
    pub(crate) async fn send_replicated(
        &self,
        command: &Cmd,
        replicas: &Replicas,
    ) -> Result<(Value, u32), Fault> {
        match self {
            Self::Single(single) => single.send_replicated(command, replicas).await,
            Self::Cluster(cluster) => cluster.send_replicated(command, replicas).await,
            Self::Given(given) => given.send_replicated(command, replicas).await,
        }
    }

    /// The servers that hold records.
    pub(crate) async fn nodes(&self) -> Result<Vec<Node>, Fault> {
        match self {
            Self::Cluster(cluster) => cluster.nodes().await,
            Self::Single(_) | Self::Given(_) => Ok(vec![Node::Only]),
        }
    }

    /// Sends a command to one server.
    pub(crate) async fn send_to(&self, node: &Node, command: &Cmd) -> Result<Value, Fault> {
        match (self, node) {
            (Self::Cluster(cluster), Node::At { host, port }) => cluster.send_to(host, *port, command).await,
            _ => self.send(command).await,
        }
    }

    /// Sends commands to one server, in one round trip. A reply may be an error.
    pub(crate) async fn send_all_to(&self, node: &Node, commands: &Pipeline) -> Result<Vec<Value>, Fault> {
        match (self, node) {
            (Self::Cluster(cluster), Node::At { host, port }) => {
                cluster.send_all_to(host, *port, commands).await
            }
            (Self::Cluster(cluster), Node::Only) => Err(cluster.nowhere()),
            (Self::Single(single), _) => single.send_all(commands).await,
            (Self::Given(given), _) => given.send_all(commands).await,
        }
    }
}

/// The replies to a command and to the `WAIT` after it.
fn pair(replies: Vec<Value>) -> Result<(Value, Result<u32, RedisError>), RedisError> {
    let mut last = replies.into_iter().rev();
    let (Some(waited), Some(reply)) = (last.next(), last.next()) else {
        return Err(RedisError::from((ErrorKind::UnexpectedReturnType, "a reply to every command")));
    };
    Ok((reply.extract_error()?, replicas::have(waited)))
}
