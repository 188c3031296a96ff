//! What is looked at, or made, before the first message.

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::{self, Stream};

use super::{Jet, Nats};
use crate::adapter::{BrokerError, Plan};
use crate::patience::in_time;
use crate::start::StartError;

impl Nats {
    /// The stream, once everything is as it must be.
    pub(super) async fn prepare(&self, jet: &Jet, dead: &str) -> Result<Stream, StartError> {
        if self.declare {
            self.make(jet, dead).await?;
        }
        let stream = self.find(jet).await?;
        self.check_dead_letter(jet, dead).await?;
        Ok(stream)
    }

    pub(super) async fn find(&self, jet: &Jet) -> Result<Stream, StartError> {
        in_time("look for a stream", jet.get_stream(&self.stream)).await.map_err(|error| {
            StartError::Source(format!(
                "the stream {} can't be used ({}); make it, or say Nats::declare",
                self.stream,
                error.cause()
            ))
        })
    }

    async fn make(&self, jet: &Jet, dead: &str) -> Result<(), BrokerError> {
        let subject = if self.subject.is_empty() { &self.stream } else { &self.subject };
        for (name, subject) in
            [(self.stream.clone(), subject.as_str()), (format!("{}-dead", self.stream), dead)]
        {
            let config =
                stream::Config { name, subjects: vec![subject.to_owned()], ..stream::Config::default() };
            in_time("make a stream", jet.get_or_create_stream(config)).await?;
        }
        Ok(())
    }

    /// A message published on a subject that no stream takes is gone.
    async fn check_dead_letter(&self, jet: &Jet, dead: &str) -> Result<(), StartError> {
        let taker = in_time("look for a stream", jet.stream_by_subject(dead)).await.map_err(|error| {
            StartError::DeadLetter(format!(
                "no stream takes the dead letter {dead} of {} ({}); make one, or say Nats::declare",
                self.stream,
                error.cause()
            ))
        })?;
        if taker == self.stream && (self.subject.is_empty() || covers(&self.subject, dead)) {
            return Err(StartError::DeadLetter(format!(
                "the dead letter {dead} is among the messages that are consumed from {}: poison would go round for ever",
                self.stream
            )));
        }
        Ok(())
    }

    /// Makes it where it is not there.
    pub(super) async fn durable_consumer(
        &self,
        stream: &Stream,
        plan: &Plan,
    ) -> Result<PullConsumer, StartError> {
        let name = match &self.durable {
            Some(name) => name.clone(),
            None => format!("{}-{}", plan.group, plan.handler).replace([' ', '.', '*', '>', '/', '\\'], "_"),
        };
        let wanted = pull::Config {
            durable_name: Some(name.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait,
            max_deliver: -1,
            filter_subject: self.subject.clone(),
            ..pull::Config::default()
        };
        let making = stream.get_or_create_consumer(&name, wanted);
        let consumer: PullConsumer = in_time("make the durable consumer", making).await?;
        let found = &consumer.cached_info().config;
        if found.ack_policy != AckPolicy::Explicit {
            return Err(StartError::Source(format!(
                "the durable consumer {name} acks by itself; it needs the ack policy `explicit`"
            )));
        }
        if found.max_deliver > 0 {
            return Err(StartError::Source(format!(
                "the durable consumer {name} gives up after {} deliveries and drops the message without a word; set max_deliver to -1, and Retries::limit decides when it goes to the dead letter",
                found.max_deliver
            )));
        }
        if found.filter_subject != self.subject {
            return Err(StartError::Source(format!(
                "the durable consumer {name} takes the subject {:?}, not {:?}; use another name",
                found.filter_subject, self.subject
            )));
        }
        Ok(consumer)
    }
}

/// Whether a filter with wildcards takes this subject.
fn covers(filter: &str, subject: &str) -> bool {
    let (mut filter, mut subject) = (filter.split('.'), subject.split('.'));
    loop {
        match (filter.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(word), Some(other)) if word == other => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn wildcards_take_what_nats_says_they_take() {
        for (filter, subject, taken) in [
            ("orders.paid", "orders.paid", true),
            ("orders.*", "orders.paid", true),
            ("orders.*", "orders.paid.eu", false),
            ("orders.>", "orders.paid.eu", true),
            ("orders.>", "orders", false),
            (">", "dead", true),
            ("orders.paid", "orders.dead", false),
        ] {
            assert_eq!(covers(filter, subject), taken, "{filter} {subject}");
        }
    }
}
