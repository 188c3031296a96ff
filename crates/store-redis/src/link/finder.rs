//! Where the one server is: always at the same address, or where the Sentinels say.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};

use super::sentinels::{self, Sentinels};

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
        config: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, RedisError> {
        let mut connection =
            self.client().await?.get_multiplexed_async_connection_with_config(config).await?;
        if let Self::Sentinels(_) = self {
            sentinels::is_primary(&mut connection).await?;
        }
        Ok(connection)
    }
}
