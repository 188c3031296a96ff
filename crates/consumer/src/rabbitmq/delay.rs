//! Delay queues: one for each power of two of milliseconds, so that there are few of them.

use std::time::Duration;

use lapin::types::{AMQPValue, FieldTable};

/// The longest delay that a queue is made for: 2^23 ms, 2.3 hours.
const LONGEST: u64 = 1 << 23;

/// How long a message that asked for `pause` may really wait, in milliseconds: the next power of two, or those above it.
pub(super) fn tiers(pause: Duration) -> impl Iterator<Item = u64> {
    let millis = u64::try_from(pause.as_millis()).unwrap_or(LONGEST);
    let first = millis.clamp(1, LONGEST).next_power_of_two();
    std::iter::successors(Some(first), |tier| Some(tier * 2)).take_while(|tier| *tier <= LONGEST)
}

/// How a delay queue is made. The forms have names of their own: a queue can't change its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// What expires stays until its queue has it (RabbitMQ 3.10 and newer).
    Quorum,
    /// What expires is moved at most once, and may be lost on the way.
    Classic,
}

impl Form {
    /// The best one first.
    pub(super) const ALL: [Self; 2] = [Self::Quorum, Self::Classic];
}

/// The name of the queue in which messages wait before they return to `queue`.
pub(super) fn name(queue: &str, tier: u64, form: Form) -> String {
    match form {
        Form::Quorum => format!("{queue}.delay.{tier}.quorum"),
        Form::Classic => format!("{queue}.delay.{tier}"),
    }
}

/// What makes it a delay queue: what is in it expires, and goes back.
///
/// It does not expire itself when unused: that would take the messages in it along.
pub(super) fn arguments(queue: &str, tier: u64, form: Form) -> FieldTable {
    let mut arguments = FieldTable::default();
    let text = |text: &str| AMQPValue::LongString(text.into());
    arguments.insert("x-message-ttl".into(), AMQPValue::LongLongInt(i64::try_from(tier).unwrap_or(i64::MAX)));
    arguments.insert("x-dead-letter-exchange".into(), text(""));
    arguments.insert("x-dead-letter-routing-key".into(), text(queue));
    if form == Form::Quorum {
        arguments.insert("x-queue-type".into(), text("quorum"));
        arguments.insert("x-dead-letter-strategy".into(), text("at-least-once"));
        // Without it the broker falls back to the other strategy, without a word.
        arguments.insert("x-overflow".into(), text("reject-publish"));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_never_shorter_than_asked_for_and_less_than_twice_as_long() {
        for millis in [0, 1, 3, 1_000, 1_024, 1_025, 300_000] {
            let tier = tiers(Duration::from_millis(millis)).next().unwrap();
            assert!(tier >= millis && tier < 2 * millis.max(1), "{millis} {tier}");
        }
        assert_eq!(tiers(Duration::MAX).collect::<Vec<_>>(), [LONGEST]);
        assert_eq!(tiers(Duration::from_secs(4_000)).collect::<Vec<_>>(), [1 << 22, LONGEST]);
    }
}
