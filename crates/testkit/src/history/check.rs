//! The rules by which a history is judged.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use onlyonce_core::{Bytes, StateKind};

use super::Event;
use crate::ledger::Effect;

/// The figures of a history that was found in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// How many keys there were.
    pub keys: usize,
    /// How many effects.
    pub effects: usize,
    /// How many calls.
    pub calls: usize,
    /// How many of them got an answer.
    pub answered: usize,
}

/// Everything that is wrong with a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violations(Vec<String>);

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} violations", self.0.len())?;
        self.0.iter().try_for_each(|violation| writeln!(f, "- {violation}"))
    }
}

impl Error for Violations {}

/// All that is known of one key.
#[derive(Default)]
struct Story<'a> {
    effects: Vec<&'a Effect>,
    events: &'a [Event],
}

pub(super) fn check(
    events: &BTreeMap<String, Vec<Event>>,
    effects: &[Effect],
    share: f64,
) -> Result<Summary, Violations> {
    let mut stories: BTreeMap<&str, Story<'_>> = BTreeMap::new();
    for (key, events) in events {
        stories.entry(key).or_default().events = events;
    }
    for effect in effects {
        stories.entry(&effect.key).or_default().effects.push(effect);
    }
    let ends_are_known = stories.values().any(|story| story.end().is_some());
    let mut violations = Vec::new();
    let (mut calls, mut answered) = (0, 0);
    for (key, story) in &stories {
        let mut wrong = story.wrongs();
        if ends_are_known && story.end().is_none() {
            wrong.push("nobody looked how it ended".into());
        }
        if !wrong.is_empty() {
            violations.push(format!("{key}: {}; history: {story}", wrong.join(", ")));
        }
        answered += story.answers().count();
        calls += story.events.iter().filter(|event| !matches!(event, Event::Ended(_))).count();
    }
    if calls == 0 || (answered as f64) < share * calls as f64 {
        violations.push(format!("only {answered} of {calls} calls were answered; {share} of them should be"));
    }
    if violations.is_empty() {
        Ok(Summary { keys: stories.len(), effects: effects.len(), calls, answered })
    } else {
        Err(Violations(violations))
    }
}

impl Story<'_> {
    fn answers(&self) -> impl Iterator<Item = &Bytes> {
        self.events.iter().filter_map(|event| match event {
            Event::Answered(answer) | Event::Unstored(answer) => Some(answer),
            Event::Refused(_) | Event::Ended(_) => None,
        })
    }

    /// The state of its record when everything was over, if somebody looked.
    fn end(&self) -> Option<Option<StateKind>> {
        self.events.iter().rev().find_map(|event| match event {
            Event::Ended(state) => Some(*state),
            Event::Answered(_) | Event::Unstored(_) | Event::Refused(_) => None,
        })
    }

    fn was_stored(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Answered(_)))
    }

    fn is_of_an_effect(&self, answer: &Bytes) -> bool {
        self.effects.iter().any(|effect| effect.by.as_bytes() == &answer[..])
    }

    fn wrongs(&self) -> Vec<String> {
        let mut wrongs = Vec::new();
        let mut different: Vec<_> = self.answers().collect();
        different.sort_unstable();
        different.dedup();
        if self.effects.len() > 1 {
            wrongs.push(format!("{} effects", self.effects.len()));
        }
        if self.effects.is_empty() && !different.is_empty() {
            wrongs.push("an answer without an effect".into());
        }
        if !self.effects.is_empty() && !different.iter().all(|answer| self.is_of_an_effect(answer)) {
            wrongs.push("an answer that is not that of its effect".into());
        }
        if different.len() > 1 {
            wrongs.push(format!("{} different answers", different.len()));
        }
        match self.end() {
            Some(Some(StateKind::Running)) => wrongs.push("still in progress".into()),
            Some(state) if self.was_stored() && state != Some(StateKind::Completed) => {
                wrongs.push("a stored answer was lost".into());
            }
            Some(None | Some(StateKind::Released)) if !self.effects.is_empty() => {
                wrongs.push("a retry would run again what had an effect".into());
            }
            _ => {}
        }
        wrongs
    }
}

impl fmt::Display for Story<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effects = self.effects.iter().map(|effect| format!("effect by {}", effect.by));
        let events = self.events.iter().map(|event| match event {
            Event::Answered(answer) => format!("answered {answer:?}"),
            Event::Unstored(answer) => format!("answered {answer:?}, not stored"),
            Event::Refused(why) => format!("refused ({why})"),
            Event::Ended(state) => format!("ended {state:?}"),
        });
        f.write_str(&effects.chain(events).collect::<Vec<_>>().join(", "))
    }
}
