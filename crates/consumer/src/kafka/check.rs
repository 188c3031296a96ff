//! What is looked at before the first message.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;

use super::Kafka;
use crate::adapter::{BrokerError, Plan};
use crate::start::{Horizon, StartError};

/// The longest that a question may take.
const PATIENCE: Duration = Duration::from_secs(15);

impl Kafka {
    /// Whether all topics are there.
    pub(super) async fn check(&self, dead: &str, plan: &Plan) -> Result<(), StartError> {
        let topics: Vec<String> =
            [Some(&self.topic), self.retry.as_ref()].into_iter().flatten().cloned().collect();
        let config = self.settings(plan);
        for topic in topics {
            is_there(config.clone(), topic.clone()).await?.map_err(|why| {
                StartError::Source(format!("the topic {topic} can't be used ({why}); make it first"))
            })?;
        }
        is_there(config, dead.to_owned()).await?.map_err(|why| {
            StartError::DeadLetter(format!(
                "the dead letter {dead} of {} can't be used ({why}); make it first",
                self.topic
            ))
        })
    }

    /// How long the topic keeps its messages, if the broker says so.
    pub(super) async fn retention(&self) -> Horizon {
        let asking = async {
            let admin: AdminClient<DefaultClientContext> = self.config.create()?;
            let options = AdminOptions::new().request_timeout(Some(Duration::from_secs(3)));
            admin.describe_configs([&ResourceSpecifier::Topic(&self.topic)], &options).await
        };
        let Ok(Ok(found)) = tokio::time::timeout(PATIENCE, asking).await else { return Horizon::Unknown };
        let value =
            found.into_iter().flatten().find_map(|resource| resource.get("retention.ms")?.value.clone());
        match value.and_then(|millis| millis.parse::<i64>().ok()) {
            None => Horizon::Unknown,
            Some(millis) => {
                u64::try_from(millis).map_or(Horizon::Ever, |n| Horizon::For(Duration::from_millis(n)))
            }
        }
    }
}

/// The client asks in a thread of its own: it blocks.
async fn is_there(config: ClientConfig, topic: String) -> Result<Result<(), String>, BrokerError> {
    let asking = tokio::task::spawn_blocking(move || {
        let client: BaseConsumer = config.create()?;
        let metadata = client.fetch_metadata(Some(&topic), PATIENCE)?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        Ok::<_, KafkaError>(match found {
            Some(found) if found.error().is_some() => Err(format!("{:?}", found.error())),
            Some(found) if found.partitions().is_empty() => Err("it has no partitions".to_owned()),
            Some(_) => Ok(()),
            None => Err("it is not there".to_owned()),
        })
    });
    match asking.await {
        Ok(asked) => asked.map_err(|error| BrokerError::new("look for a topic", error)),
        Err(error) => Err(BrokerError::new("look for a topic", error)),
    }
}
