//! One server, on a connection that the user already has.

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, Value};

use super::pair;
use crate::fault::Fault;
use crate::replicas::{self, Replicas};

/// Clones of the user's connection.
pub(crate) struct Given(Box<dyn Copies>);

trait Copies: Send + Sync {
    fn copy(&self) -> Box<dyn ConnectionLike + Send>;
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Copies for C {
    fn copy(&self) -> Box<dyn ConnectionLike + Send> {
        Box::new(self.clone())
    }
}

impl Given {
    pub(crate) fn new(connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> Self {
        Self(Box::new(connection))
    }

    pub(crate) async fn send(&self, command: &Cmd) -> Result<Value, Fault> {
        let mut connection = self.0.copy();
        let reply = connection.req_packed_command(command).await;
        // A reconnecting connection does not say whether it had sent the command; `Sent` assumes that it had.
        reply.and_then(Value::extract_error).map_err(Fault::Sent)
    }

    pub(crate) async fn send_replicated(
        &self,
        command: &Cmd,
        replicas: &Replicas,
    ) -> Result<(Value, u32), Fault> {
        let mut commands = Pipeline::with_capacity(2);
        commands.add_command(command.clone()).add_command(replicas.wait());
        let (reply, waited) = pair(self.send_all(&commands).await?).map_err(Fault::Sent)?;
        replicas::judged(reply, waited)
    }

    pub(crate) async fn send_all(&self, commands: &Pipeline) -> Result<Vec<Value>, Fault> {
        let mut connection = self.0.copy();
        connection.req_packed_commands(commands, 0, commands.len()).await.map_err(Fault::Sent)
    }
}
