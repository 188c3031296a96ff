//! No step waits for a broker for ever.

use std::error::Error;
use std::time::Duration;

use tokio::time::timeout;

use crate::adapter::BrokerError;

/// The longest that a broker may take for one step.
const PATIENCE: Duration = Duration::from_secs(15);

/// What came of a step, or that the broker said nothing.
pub(crate) async fn in_time<T, E>(
    what: &'static str,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, BrokerError>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    within(PATIENCE, what, step).await
}

async fn within<T, E>(
    limit: Duration,
    what: &'static str,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, BrokerError>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    match timeout(limit, step).await {
        Ok(done) => done.map_err(|error| BrokerError::new(what, error)),
        Err(_) => Err(BrokerError::new(what, format!("no answer within {limit:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_broker_that_says_nothing_is_an_error() {
        let silent = std::future::pending::<Result<(), std::io::Error>>();
        let error = within(Duration::from_millis(5), "ack", silent).await.unwrap_err();
        assert_eq!(error.to_string(), "the broker failed: ack");
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("no answer within 5ms"));
    }
}
