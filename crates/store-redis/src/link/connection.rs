//! A connection to one server: our own where it can be, else the driver's.

use futures_util::future::try_join_all;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisError, Value};

use super::wire::Wire;

/// Clones are the same connection.
#[derive(Clone)]
pub(crate) enum Connection {
    /// Plain TCP.
    Wire(Wire),
    /// TLS, sockets of files, and the third version of the protocol.
    Driver(MultiplexedConnection),
}

impl Connection {
    /// Whether it may still be there. The driver does not know.
    pub(super) fn may_be_open(&self) -> bool {
        match self {
            Self::Wire(wire) => wire.is_open(),
            Self::Driver(_) => true,
        }
    }

    /// Sends a command. An error of the server is an error.
    pub(super) async fn send(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        let reply = match self {
            Self::Wire(wire) => wire.send(command).await,
            Self::Driver(driver) => driver.req_packed_command(command).await,
        };
        reply.and_then(Value::extract_error)
    }

    /// Sends commands, in one round trip. A reply may be an error.
    pub(super) async fn send_all(&mut self, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
        match self {
            Self::Wire(wire) => try_join_all(commands.cmd_iter().map(|command| wire.send(command))).await,
            Self::Driver(driver) => driver.req_packed_commands(commands, 0, commands.len()).await,
        }
    }
}
