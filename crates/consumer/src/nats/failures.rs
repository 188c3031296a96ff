//! How often messages have failed here. The server counts deliveries only, whatever they came to: it can't tell a message that failed
//! from one that nobody could begin, because the store was down or it ran elsewhere.

use std::collections::HashMap;

use parking_lot::Mutex;

/// More messages than that hardly fail at the same time: a server holds back its stream long before.
const MOST: usize = 10_000;

/// By the position of the message.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<HashMap<Box<str>, u32>>);

impl Failures {
    pub(super) fn of(&self, position: &str) -> u32 {
        self.0.lock().get(position).copied().unwrap_or(0)
    }

    pub(super) fn failed(&self, position: Option<&str>, failures: u32) {
        let (Some(position), mut all) = (position, self.0.lock()) else { return };
        if all.len() >= MOST && !all.contains_key(position) {
            // Those that ended at another consumer stay here; one that failed seldom is missed least.
            let least =
                all.iter().min_by_key(|(_, failures)| **failures).map(|(position, _)| position.clone());
            least.map(|position| all.remove(&position));
        }
        all.insert(position.into(), failures);
    }

    /// It will not come back.
    pub(super) fn over(&self, position: Option<&str>) {
        position.map(|position| self.0.lock().remove(position));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_too_many_messages_are_forgotten_but_not_those_that_fail_most() {
        let failures = Failures::default();
        failures.failed(Some("often"), 7);
        for n in 0..2 * MOST {
            failures.failed(Some(&n.to_string()), 1);
        }
        assert_eq!((failures.of("often"), failures.0.lock().len()), (7, MOST));
        failures.over(Some("often"));
        assert_eq!(failures.of("often"), 0);
    }
}
