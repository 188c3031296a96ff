//! What is checked before the first message: errors that stop a consumer from starting, and warnings that do not.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use onlyonce_core::InputError;

use crate::adapter::BrokerError;

/// Why a consumer did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// A setting can't be used.
    Input(InputError),
    /// There is no dead letter, or not the one that was named: poison would be lost or block the queue.
    DeadLetter(String),
    /// The queue, stream or topic is not there, or is set up so that messages would be lost.
    Source(String),
    /// A warning, under `strict`.
    Strict(Warning),
    /// The broker can't be reached, or failed.
    Broker(BrokerError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(_) => f.write_str("the consumer was not started: a setting can't be used"),
            Self::DeadLetter(why) => write!(f, "the consumer was not started: {why}"),
            Self::Source(why) => write!(f, "the consumer was not started: {why}"),
            Self::Strict(warning) => {
                write!(f, "the consumer was not started, because it is strict: {warning}")
            }
            Self::Broker(_) => f.write_str("the consumer was not started: the broker can't be used"),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Input(cause) => Some(cause),
            Self::Broker(cause) => Some(cause),
            _ => None,
        }
    }
}

impl From<BrokerError> for StartError {
    fn from(error: BrokerError) -> Self {
        Self::Broker(error)
    }
}

impl From<InputError> for StartError {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

/// What was noticed at the start and may break the promise later. Logged, and an error under `strict`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// Records are forgotten before the broker stops delivering their messages.
    ShortWindow {
        /// How long a completed record is kept.
        retain: Duration,
        /// How long a message may still come back; `None` is for ever.
        horizon: Option<Duration>,
    },
    /// How long a message may come back is not known.
    UnknownHorizon,
    /// A handler may run for longer than the broker waits for its ack.
    LongRun {
        /// The longest run.
        max_run: Duration,
        /// The broker's patience.
        patience: Duration,
    },
    /// Something of the broker's own.
    Other(String),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShortWindow { retain, horizon: Some(horizon) } => write!(
                f,
                "records are kept for {retain:?}, but messages may be delivered again for {horizon:?}: one that comes back after its record is gone runs again; raise Settings::retain"
            ),
            Self::ShortWindow { retain, horizon: None } => write!(
                f,
                "records are kept for {retain:?}, but the broker keeps messages for ever: one that is replayed after its record is gone runs again; limit the age of messages, raise Settings::retain, or state the longest replay with replay_horizon"
            ),
            Self::UnknownHorizon => f.write_str(
                "how long a message may be delivered again is not known; state it with replay_horizon, so that it can be compared with Settings::retain",
            ),
            Self::LongRun { max_run, patience } => write!(
                f,
                "a handler may run for {max_run:?}, but the broker waits only {patience:?} for its ack; lower Settings::max_run"
            ),
            Self::Other(what) => f.write_str(what),
        }
    }
}

/// How long messages may come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Horizon {
    /// The broker does not say.
    Unknown,
    /// For so long.
    For(Duration),
    /// As long as the broker lives.
    Ever,
}

/// Whether the window of the records covers it.
pub(crate) fn window(retain: Duration, horizon: Horizon) -> Option<Warning> {
    match horizon {
        Horizon::Unknown => Some(Warning::UnknownHorizon),
        Horizon::Ever => Some(Warning::ShortWindow { retain, horizon: None }),
        Horizon::For(horizon) if horizon > retain => {
            Some(Warning::ShortWindow { retain, horizon: Some(horizon) })
        }
        Horizon::For(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn a_window_that_is_shorter_than_the_replay_horizon_is_warned_about() {
        assert_eq!(window(DAY, Horizon::For(DAY)), None);
        let warning = window(DAY, Horizon::For(7 * DAY)).unwrap();
        assert!(warning.to_string().contains("raise Settings::retain"), "{warning}");
        assert!(window(DAY, Horizon::Ever).unwrap().to_string().contains("for ever"));
        assert_eq!(window(DAY, Horizon::Unknown), Some(Warning::UnknownHorizon));
    }
}
