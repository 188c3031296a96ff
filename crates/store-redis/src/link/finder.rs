//! Where the one server is: always at the same address, or where the Sentinels say.

use std::sync::Arc;
use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, RedisError};

use super::connection::Connection;
use super::sentinels::{self, Sentinels};
use super::wire::Wire;

/// How many commands may be on their way to the driver's task, before callers have to wait for each other.
const QUEUE: usize = 1024;

#[derive(Clone)]
pub(crate) enum Finder {
    At(Box<Client>),
    Sentinels(Arc<Sentinels>),
}

impl Finder {
    pub(crate) async fn client(&self) -> Result<Client, RedisError> {
        match self {
            Self::At(client) => Ok((**client).clone()),
            Self::Sentinels(sentinels) => sentinels.primary().await,
        }
    }

    pub(crate) async fn connect(
        &self,
        connect: Duration,
        response: Duration,
    ) -> Result<Connection, RedisError> {
        let client = self.client().await?;
        let info = client.get_connection_info();
        let mut connection = if Wire::is_for(info) {
            Connection::Wire(Wire::connect(info, connect, response).await?)
        } else {
            let config = AsyncConnectionConfig::new().set_pipeline_buffer_size(QUEUE);
            let config = config.set_connection_timeout(Some(connect)).set_response_timeout(Some(response));
            Connection::Driver(client.get_multiplexed_async_connection_with_config(&config).await?)
        };
        if let Self::Sentinels(_) = self {
            sentinels::is_primary(&mut connection).await?;
        }
        Ok(connection)
    }
}
