//! Sentinels: they say which server is the primary just now.
//!
//! All of them are asked at once, and who has seen the latest failover is believed as soon as a majority has answered: one
//! that was cut off would still name the old primary. The server is then asked whether it knows that it is one.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError};
use tokio::time::timeout;

use super::connection::Connection;

/// Whom to ask, and for what.
pub(crate) struct Sentinels {
    clients: Vec<Client>,
    name: String,
    /// Login, database and TLS of the primary; its address is filled in.
    primary: ConnectionInfo,
    patience: Duration,
}

/// What a Sentinel says about the primary.
struct Told {
    epoch: u64,
    host: String,
    port: u16,
}

impl Sentinels {
    pub(crate) fn new(
        sentinels: Vec<ConnectionInfo>,
        name: String,
        primary: ConnectionInfo,
        patience: Duration,
    ) -> Result<Self, RedisError> {
        let clients = sentinels.into_iter().map(Client::open).collect::<Result<_, _>>()?;
        Ok(Self { clients, name, primary, patience })
    }

    /// The primary, as far as the Sentinels know.
    pub(crate) async fn primary(&self) -> Result<Client, RedisError> {
        let mut answers: FuturesUnordered<_> = self.clients.iter().map(|client| self.ask(client)).collect();
        let majority = self.clients.len() / 2 + 1;
        let mut told: Vec<Told> = Vec::new();
        let mut failure = None;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(answer) => told.push(answer),
                Err(cause) => failure = Some(cause),
            }
            if told.len() >= majority {
                break;
            }
        }
        let Some(latest) = told.into_iter().max_by_key(|told| told.epoch) else {
            return Err(failure.unwrap_or_else(|| unknown("no Sentinel is named")));
        };
        let addr = match self.primary.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host: latest.host,
                port: latest.port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(latest.host, latest.port),
        };
        Client::open(self.primary.clone().set_addr(addr))
    }

    async fn ask(&self, client: &Client) -> Result<Told, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.patience))
            .set_response_timeout(Some(self.patience));
        let asked = async {
            let mut sentinel = client.get_multiplexed_async_connection_with_config(&config).await?;
            let mut question = redis::cmd("SENTINEL");
            question.arg("MASTER").arg(&self.name);
            question.query_async::<HashMap<String, String>>(&mut sentinel).await
        };
        let late = |_| RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
        let said = timeout(self.patience, asked).await.map_err(late)?.map_err(|cause| {
            let no_such_name = cause.detail().is_some_and(|detail| detail.contains("No such master"));
            if no_such_name { unknown("the Sentinels watch no primary of this name") } else { cause }
        })?;
        let port = said.get("port").and_then(|port| port.parse().ok());
        match (said.get("ip"), port) {
            (Some(host), Some(port)) => {
                let epoch = said.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
                Ok(Told { epoch, host: host.clone(), port })
            }
            _ => Err(unknown("a Sentinel names no address")),
        }
    }
}

/// Whether the server says of itself that it is a primary. One that may not be asked is taken at the Sentinels' word.
pub(super) async fn is_primary(connection: &mut Connection) -> Result<(), RedisError> {
    match connection.send(&redis::cmd("ROLE")).await {
        Ok(redis::Value::Array(role)) => match role.into_iter().next().map(redis::from_redis_value::<String>)
        {
            Some(Ok(role)) if role != "master" => {
                Err(unknown("the server that the Sentinels name is no primary (yet)"))
            }
            _ => Ok(()),
        },
        Err(cause) if cause.code() != Some("NOPERM") => Err(cause),
        _ => Ok(()),
    }
}

fn unknown(why: &'static str) -> RedisError {
    RedisError::from((ErrorKind::MasterNameNotFoundBySentinel, why))
}
