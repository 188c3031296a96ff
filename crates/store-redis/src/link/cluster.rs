//! A Cluster: the driver knows the nodes and the slots; redirections are followed here.
//!
//! Our own connection is made without the driver's retries. It would repeat a command whose connection broke, and the
//! error of the last try says nothing about the first.

use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{Arg, Cmd, ConnectionInfo, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};

use super::renewable::Renewable;
use super::{Node, pair};
use crate::fault::Fault;
use crate::replicas::{self, Replicas};

/// How long to wait before a command is sent again; the driver learns the new slots meanwhile. Doubles.
const PAUSE: Duration = Duration::from_millis(10);
/// How often a command is sent again: one redirection is normal while slots move, and a failover takes a few; and a record and
/// its index are not in one place until their slot has moved. For 2.5 s in all, in which a slot of tens of thousands of records
/// has moved. One count for all of them, because one follows the other.
const TRIES: u32 = 8;

pub(crate) struct Cluster {
    connection: Renewable,
    /// Whether every try of a command is seen here.
    exact: bool,
}

impl Cluster {
    pub(crate) async fn connect(
        nodes: Vec<ConnectionInfo>,
        connect: Duration,
        response: Duration,
    ) -> Result<Self, RedisError> {
        let client = ClusterClientBuilder::new(nodes).retries(0).connection_timeout(connect);
        let client = client.response_timeout(response).build()?;
        Ok(Self { connection: Renewable::connect(client, connect).await?, exact: true })
    }

    /// On the user's connection, which may retry by itself.
    pub(crate) fn given(connection: ClusterConnection) -> Self {
        Self { connection: Renewable::given(connection), exact: false }
    }

    pub(crate) async fn send(&self, command: &Cmd) -> Result<Value, Fault> {
        Ok(self.follow(command, None).await?.0)
    }

    pub(crate) async fn send_replicated(
        &self,
        command: &Cmd,
        replicas: &Replicas,
    ) -> Result<(Value, u32), Fault> {
        self.follow(command, Some(replicas)).await
    }

    /// Sends, and sends again where the Cluster says.
    async fn follow(&self, command: &Cmd, replicas: Option<&Replicas>) -> Result<(Value, u32), Fault> {
        let mut ask = None;
        for n in 0.. {
            let reply = match (ask.take(), replicas) {
                (None, None) => {
                    let reply = self.connection.get().await.req_packed_command(command).await;
                    reply.and_then(Value::extract_error).map(|reply| (reply, Ok(0)))
                }
                (asked, replicas) => self.send_to_one(command, asked, replicas).await,
            };
            let cause = match reply {
                Ok((reply, waited)) => return replicas::judged(reply, waited),
                Err(cause) => cause,
            };
            match cause.kind() {
                _ if n >= TRIES => return Err(self.fault(cause)),
                ErrorKind::Server(ServerErrorKind::Ask) => ask = cause.redirect_node().and_then(address),
                // The slot is on its way, or the map of slots is old: the driver has begun to read the new one.
                ErrorKind::Server(
                    ServerErrorKind::TryAgain | ServerErrorKind::Moved | ServerErrorKind::ReadOnly,
                ) => {
                    tokio::time::sleep(PAUSE * (1 << n)).await;
                }
                _ => return Err(self.fault(cause)),
            }
        }
        Err(self.nowhere())
    }

    /// Sends a command to the node that is just receiving the slot, if one is `asked`, and waits for replicas on the same
    /// connection: a `WAIT` is about what its own connection wrote.
    async fn send_to_one(
        &self,
        command: &Cmd,
        asked: Option<(String, u16)>,
        replicas: Option<&Replicas>,
    ) -> Result<(Value, Result<u32, RedisError>), RedisError> {
        let mut commands = Pipeline::with_capacity(3);
        let to = match asked {
            None => SingleNodeRoutingInfo::SpecificNode(Route::with_key(key(command), SlotAddr::Master)),
            Some((host, port)) => {
                commands.cmd("ASKING");
                SingleNodeRoutingInfo::ByAddress { host, port }
            }
        };
        commands.add_command(command.clone());
        if let Some(replicas) = replicas {
            commands.add_command(replicas.wait());
        }
        let count = commands.len();
        let mut replies = self.connection.get().await.route_pipeline(commands, 0, count, to).await?;
        if replicas.is_some() {
            return pair(replies);
        }
        replies.pop().unwrap_or(Value::Nil).extract_error().map(|reply| (reply, Ok(0)))
    }

    pub(crate) async fn nodes(&self) -> Result<Vec<Node>, Fault> {
        let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let replies = self.connection.get().await.route_command(redis::cmd("PING"), all).await;
        let Value::Map(replies) = replies.map_err(|cause| self.fault(cause))? else {
            return Err(self.nowhere());
        };
        let mut nodes: Vec<_> = replies.into_iter().filter_map(|(name, _)| node(&name)).collect();
        // An order that stays the same, whatever order they answered in.
        nodes.sort_unstable_by_key(|(host, port)| (host.clone(), *port));
        Ok(nodes.into_iter().map(|(host, port)| Node::At { host, port }).collect())
    }

    pub(crate) async fn send_to(&self, host: &str, port: u16, command: &Cmd) -> Result<Value, Fault> {
        let to = RoutingInfo::SingleNode(SingleNodeRoutingInfo::ByAddress { host: host.into(), port });
        let reply = self.connection.get().await.route_command(command.clone(), to).await;
        reply.and_then(Value::extract_error).map_err(|cause| self.fault(cause))
    }

    pub(crate) async fn send_all_to(
        &self,
        host: &str,
        port: u16,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, Fault> {
        let to = SingleNodeRoutingInfo::ByAddress { host: host.into(), port };
        let replies =
            self.connection.get().await.route_pipeline(commands.clone(), 0, commands.len(), to).await;
        replies.map_err(|cause| self.fault(cause))
    }

    pub(crate) fn nowhere(&self) -> Fault {
        Fault::NotSent(RedisError::from((ErrorKind::ClusterConnectionNotFound, "no primary is known")))
    }

    fn fault(&self, cause: RedisError) -> Fault {
        self.connection.failed(&cause);
        if !self.exact {
            return Fault::Unclear(cause);
        }
        // Without a connection to the node nothing was sent. The driver connects before it sends.
        if cause.is_connection_refusal() || cause.kind() == ErrorKind::ClusterConnectionNotFound {
            return Fault::NotSent(cause);
        }
        Fault::Sent(cause)
    }
}

/// The first key of a script.
fn key(command: &Cmd) -> &[u8] {
    match command.args_iter().nth(3) {
        Some(Arg::Simple(key)) => key,
        _ => &[],
    }
}

fn node(name: &Value) -> Option<(String, u16)> {
    let (Value::BulkString(_) | Value::SimpleString(_)) = name else { return None };
    let name: String = redis::from_redis_value(name.clone()).ok()?;
    address((&name, 0))
}

fn address((name, _slot): (&str, u16)) -> Option<(String, u16)> {
    let (host, port) = name.rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?))
}
