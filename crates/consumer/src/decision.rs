//! The decision table: what became of a message, and what its broker is told. Pure, one test a row.

use std::fmt;
use std::time::Duration;

use crate::identity::NoId;
use crate::message::History;

/// The brokers, where they differ in what they can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Broker {
    /// RabbitMQ: a message that is to come back later waits in a delay queue.
    RabbitMq,
    /// NATS JetStream: a message is told when to come back.
    Nats,
    /// Kafka: a message that is to come back holds up its partition, or goes to a retry topic.
    Kafka,
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It has had its effect, and that is on record.
    Done,
    /// It had its effect before.
    Duplicate,
    /// It is being handled elsewhere, or it is not on record yet how it ended.
    InFlight {
        /// When looking again makes sense.
        retry_after: Duration,
    },
    /// A business error: an answer, and on record.
    Refused,
    /// A system error: nothing happened.
    Failed {
        /// How often it has failed by now.
        failures: u32,
        /// What it said.
        why: String,
    },
    /// The record could not be kept, so nothing ran. Not the message's fault, however often it happens.
    StoreDown,
    /// Nobody can know whether it had its effect.
    Unknown {
        /// When asking again may tell more; `None` if only a person can.
        ask_in: Option<Duration>,
    },
    /// It can't be handled, now or later.
    Poison(Reason),
}

/// Why a message can't be handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// It can't be known again.
    NoId(NoId),
    /// It has headers whose names are not text, and what they say can't be known.
    Headers,
    /// Its id was used before by a message that says something else.
    Mismatch,
    /// Its record was written in a way that this release does not know, or can't be read.
    Unreadable,
    /// Its handler failed too often.
    Failed {
        /// How often.
        failures: u32,
        /// What it said the last time.
        why: String,
    },
    /// Nobody can know whether it had its effect: a person decides, and may send it again.
    Unknown,
}

impl Reason {
    /// One word for it, in headers and metrics.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::NoId(_) => "no-id",
            Self::Headers => "headers",
            Self::Mismatch => "mismatch",
            Self::Unreadable => "unreadable",
            Self::Failed { .. } => "failed",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoId(why) => why.fmt(f),
            Self::Headers => {
                f.write_str("the message has headers whose names are not UTF-8; they are left out of this copy")
            }
            Self::Mismatch => f.write_str("the message id was used before by a message with another payload"),
            Self::Unreadable => f.write_str("the record of this message can't be read by this release"),
            Self::Failed { failures, why } => write!(f, "failed {failures} times, the last time with: {why}"),
            Self::Unknown => f.write_str(
                "nobody knows whether the message had its effect: look, resolve its record, and send it again if it had none",
            ),
        }
    }
}

/// What is done with a message. Each broker has its own means for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It is done with: acked (RabbitMQ), acked and the ack acknowledged (NATS), its offset stored (Kafka).
    Ack,
    /// It comes back later: by a delay queue (RabbitMQ), nak with delay (NATS), or its partition is held (Kafka).
    Delay(Duration),
    /// It failed and comes back after a pause: by the retry exchange (RabbitMQ), nak with backoff (NATS), in place (Kafka).
    Retry(Duration),
    /// It failed in place too often to hold up its partition: by the retry topic (Kafka).
    RetryTopic(Duration),
    /// Nobody knows: its record waits for a person, a copy goes to the dead letter, and it is acked and counted.
    Park,
    /// It goes to the dead letter with the reason, and is acked (RabbitMQ, Kafka) or terminated (NATS).
    DeadLetter(Reason),
}

/// How often and when a message that failed is tried again.
///
/// ```
/// use onlyonce_consumer::Retries;
/// use std::time::Duration;
/// let retries = Retries { first: Duration::from_millis(100), ..Retries::default() };
/// assert_eq!(retries.pause(1), Duration::from_millis(100));
/// assert_eq!(retries.pause(3), Duration::from_millis(400));
/// assert_eq!(retries.pause(99), retries.longest);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// After so many failures it goes to the dead letter (16).
    pub limit: u32,
    /// The first pause (1 s); each is twice as long as the one before it.
    pub first: Duration,
    /// The longest pause (5 min).
    pub longest: Duration,
    /// Kafka: how many failures hold up the partition, before the message goes to the retry topic (3). Without a retry
    /// topic all of them do.
    pub in_place: u32,
}

impl Default for Retries {
    fn default() -> Self {
        Self { limit: 16, first: Duration::from_secs(1), longest: Duration::from_secs(300), in_place: 3 }
    }
}

impl Retries {
    /// The pause after the `n`th failure.
    #[must_use]
    pub fn pause(&self, n: u32) -> Duration {
        let doubled = 1_u32.checked_shl(n.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.longest)
    }
}

/// The longest that a message waits before it is looked whether it still runs elsewhere.
const LONGEST_LOOK: Duration = Duration::from_secs(30);
/// The longest that a message waits for anything: no broker is told a time that it can't count.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The table.
#[must_use]
pub fn decide(broker: Broker, outcome: Outcome, history: History, retries: &Retries) -> Action {
    let patience = |least: Duration| {
        let pause = retries.pause(history.deliveries.saturating_add(1));
        Action::Delay(pause.min(LONGEST_LOOK).max(least).min(LONGEST))
    };
    match outcome {
        Outcome::Done | Outcome::Duplicate | Outcome::Refused => Action::Ack,
        Outcome::InFlight { retry_after } => patience(retry_after),
        Outcome::StoreDown => patience(Duration::ZERO),
        Outcome::Unknown { ask_in: Some(later) } => patience(later),
        Outcome::Unknown { ask_in: None } => Action::Park,
        Outcome::Poison(reason) => Action::DeadLetter(reason),
        Outcome::Failed { failures, why } if failures >= retries.limit => {
            Action::DeadLetter(Reason::Failed { failures, why })
        }
        Outcome::Failed { failures, .. } => {
            let pause = retries.pause(failures).min(LONGEST);
            match broker {
                Broker::Kafka if failures >= retries.in_place => Action::RetryTopic(pause),
                Broker::Kafka | Broker::Nats | Broker::RabbitMq => Action::Retry(pause),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const ALL: [Broker; 3] = [Broker::RabbitMq, Broker::Nats, Broker::Kafka];

    fn after(deliveries: u32) -> History {
        History { deliveries, failures: 0 }
    }

    fn table(broker: Broker, outcome: Outcome) -> Action {
        decide(broker, outcome, History::default(), &Retries::default())
    }

    fn failed(failures: u32) -> Outcome {
        Outcome::Failed { failures, why: "down".into() }
    }

    #[test]
    fn done_or_duplicate_is_acked() {
        for broker in ALL {
            assert_eq!(table(broker, Outcome::Done), Action::Ack);
            assert_eq!(table(broker, Outcome::Duplicate), Action::Ack);
        }
    }

    #[test]
    fn in_flight_elsewhere_is_delayed_longer_each_time_and_never_hot() {
        for broker in ALL {
            let look = |n| {
                let outcome = Outcome::InFlight { retry_after: SECOND };
                decide(broker, outcome, after(n), &Retries::default())
            };
            assert_eq!(look(0), Action::Delay(SECOND));
            assert_eq!(look(3), Action::Delay(8 * SECOND));
            assert_eq!(look(50), Action::Delay(LONGEST_LOOK));
        }
    }

    #[test]
    fn a_delay_is_never_shorter_than_the_engine_asks_for() {
        let eager = Retries { first: Duration::ZERO, ..Retries::default() };
        let outcome = Outcome::InFlight { retry_after: SECOND };
        assert_eq!(decide(Broker::Nats, outcome, after(0), &eager), Action::Delay(SECOND));
    }

    #[test]
    fn a_business_error_is_on_record_and_acked() {
        for broker in ALL {
            assert_eq!(table(broker, Outcome::Refused), Action::Ack);
        }
    }

    #[test]
    fn a_system_error_comes_back_after_a_growing_pause() {
        for broker in ALL {
            assert_eq!(table(broker, failed(1)), Action::Retry(SECOND));
            assert_eq!(table(broker, failed(2)), Action::Retry(2 * SECOND));
        }
    }

    #[test]
    fn a_system_error_on_kafka_is_retried_in_place_and_then_by_the_retry_topic() {
        assert_eq!(table(Broker::Kafka, failed(2)), Action::Retry(2 * SECOND));
        assert_eq!(table(Broker::Kafka, failed(3)), Action::RetryTopic(4 * SECOND));
        assert_eq!(table(Broker::RabbitMq, failed(3)), Action::Retry(4 * SECOND));
        assert_eq!(table(Broker::Nats, failed(3)), Action::Retry(4 * SECOND));
    }

    #[test]
    fn an_unknown_outcome_is_parked() {
        for broker in ALL {
            assert_eq!(table(broker, Outcome::Unknown { ask_in: None }), Action::Park);
        }
    }

    #[test]
    fn an_unknown_outcome_that_can_be_asked_about_is_asked_about_later() {
        for broker in ALL {
            let outcome = Outcome::Unknown { ask_in: Some(60 * SECOND) };
            assert_eq!(table(broker, outcome), Action::Delay(60 * SECOND));
        }
    }

    #[test]
    fn poison_goes_to_the_dead_letter_with_its_reason() {
        for broker in ALL {
            for reason in [Reason::NoId(NoId::Missing), Reason::Headers, Reason::Mismatch, Reason::Unreadable]
            {
                assert_eq!(table(broker, Outcome::Poison(reason.clone())), Action::DeadLetter(reason));
            }
        }
    }

    #[test]
    fn what_fails_too_often_is_poison() {
        for broker in ALL {
            let Action::DeadLetter(reason) = table(broker, failed(16)) else { panic!("it came back") };
            assert_eq!(reason.to_string(), "failed 16 times, the last time with: down");
        }
    }

    #[test]
    fn no_pause_is_longer_than_a_day() {
        let patient = Retries { first: Duration::MAX, longest: Duration::MAX, ..Retries::default() };
        let unknown = Outcome::Unknown { ask_in: Some(Duration::MAX) };
        let busy = Outcome::InFlight { retry_after: Duration::MAX };
        for broker in ALL {
            for outcome in [failed(1), failed(15), unknown.clone(), busy.clone()] {
                let action = decide(broker, outcome, after(u32::MAX), &patient);
                let (Action::Delay(pause) | Action::Retry(pause) | Action::RetryTopic(pause)) = action else {
                    panic!("{action:?}")
                };
                assert_eq!(pause, LONGEST);
            }
        }
    }

    #[test]
    fn a_store_that_is_down_delays_and_never_kills_a_message() {
        for broker in ALL {
            for n in [0, 5, 1_000_000] {
                let action = decide(broker, Outcome::StoreDown, after(n), &Retries::default());
                assert!(matches!(action, Action::Delay(pause) if pause >= SECOND), "{action:?}");
            }
        }
    }
}
