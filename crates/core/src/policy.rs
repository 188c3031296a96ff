//! Judgement: what a record that somebody else began means for this call. Pure, and the only place where it is decided.

use std::time::Duration;

use crate::fingerprint::Fingerprint;
use crate::record::{Answer, Fence, Snapshot, State};

/// What a duplicate gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// The stored answer, the same bytes every time.
    #[default]
    Replay,
    /// A refusal; no answer is stored.
    Reject,
}

/// What to do about an attempt that ended without a word: nobody knows whether its effect happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnLapse {
    /// Say "unknown" until a person or the API decides. Never runs twice.
    #[default]
    Hold,
    /// Run again: the caller's word that running twice is harmless.
    Rerun,
    /// Once it has lapsed for that long, ask whether it happened. Safe if by then the effect can no longer happen.
    Ask {
        /// At least the upstream's own time-out.
        after: Duration,
    },
}

/// The part of a call's settings that judgement needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    /// What a duplicate gets.
    pub mode: Mode,
    /// What becomes of a lapsed record.
    pub on_lapse: OnLapse,
}

/// What a taken record means for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Give this answer.
    Replay(Answer),
    /// It was done before, and there is no answer to give.
    Duplicate,
    /// It runs, for that much longer at most unless it is renewed.
    InProgress {
        /// What is left of its lease.
        lease_left: Duration,
    },
    /// The key was used with another payload.
    Mismatch,
    /// Nobody knows whether it happened.
    Unknown {
        /// What was seen of it.
        evidence: Answer,
        /// When asking again may tell more; `None` if only a person can.
        ask_in: Option<Duration>,
    },
    /// The record was written by rules that this release does not know.
    Unreadable,
    /// Begin again, taking over what lapsed at this fence.
    TakeOver(Fence),
    /// Nothing happened: begin again.
    Again,
}

/// Judges a record that this call did not begin.
///
/// ```
/// use onlyonce_core::policy::{decide, Decision, Rules};
/// # use onlyonce_core::{Answer, Fence, Fingerprint, Hash16, Key, Label, Scope, Snapshot, State};
/// # use std::time::Duration;
/// # let label = Label { route: "pay".into(), key: Hash16::of_key(&Key::new("k")?), scope: Hash16::of_scope(&Scope::shared()) };
/// let paid = Fingerprint::of("10 EUR")?;
/// let snapshot = Snapshot {
///     state: State::Completed(Answer("receipt 7".into())),
///     fence: Fence(1), fingerprint: paid, attempts: 1, age: Duration::ZERO, expires_in: Duration::MAX, label,
/// };
/// assert_eq!(decide(&snapshot, &paid, Rules::default()), Decision::Replay(Answer("receipt 7".into())));
/// assert_eq!(decide(&snapshot, &Fingerprint::of("99 EUR")?, Rules::default()), Decision::Mismatch);
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[must_use]
pub fn decide(snapshot: &Snapshot, fingerprint: &Fingerprint, rules: Rules) -> Decision {
    if snapshot.fingerprint.version() != fingerprint.version() {
        return Decision::Unreadable;
    }
    if snapshot.fingerprint != *fingerprint {
        return Decision::Mismatch;
    }
    match (&snapshot.state, rules.mode) {
        (State::Completed(answer), Mode::Replay) if !answer.is_none() => Decision::Replay(answer.clone()),
        (State::Completed(_), _) | (State::Running { .. }, Mode::Reject) => Decision::Duplicate,
        (State::Running { lease_left }, Mode::Replay) => Decision::InProgress { lease_left: *lease_left },
        (State::Released, _) => Decision::Again,
        (State::Lapsed { since, evidence }, _) => lapsed(snapshot.fence, *since, evidence, rules.on_lapse),
    }
}

fn lapsed(fence: Fence, since: Duration, evidence: &Answer, on_lapse: OnLapse) -> Decision {
    let unknown = |ask_in| Decision::Unknown { evidence: evidence.clone(), ask_in };
    match on_lapse {
        OnLapse::Hold => unknown(None),
        OnLapse::Rerun => Decision::TakeOver(fence),
        OnLapse::Ask { after } => match after.checked_sub(since) {
            None | Some(Duration::ZERO) => Decision::TakeOver(fence),
            later => unknown(later),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Hash16, Key, Scope};
    use crate::record::Label;

    fn snapshot(state: State) -> Snapshot {
        Snapshot {
            state,
            fence: Fence(7),
            fingerprint: Fingerprint::empty(),
            attempts: 1,
            age: Duration::ZERO,
            expires_in: Duration::from_secs(60),
            label: Label {
                route: "r".into(),
                key: Hash16::of_key(&Key::new("k").unwrap()),
                scope: Hash16::of_scope(&Scope::shared()),
            },
        }
    }

    fn judge(state: State, rules: Rules) -> Decision {
        decide(&snapshot(state), &Fingerprint::empty(), rules)
    }

    fn lapsed_for(secs: u64) -> State {
        State::Lapsed { since: Duration::from_secs(secs), evidence: Answer::none() }
    }

    #[test]
    fn another_payload_is_a_mismatch_in_every_state() {
        let other = Fingerprint::of("other").unwrap();
        for state in [
            State::Running { lease_left: Duration::from_secs(1) },
            lapsed_for(1),
            State::Released,
            State::Completed(Answer("a".into())),
        ] {
            assert_eq!(decide(&snapshot(state), &other, Rules::default()), Decision::Mismatch);
        }
    }

    #[test]
    fn an_unknown_fingerprint_version_fails_closed() {
        let newer = Fingerprint::from_parts(Fingerprint::VERSION + 1, [0; 32]);
        for state in [State::Released, lapsed_for(1), State::Completed(Answer("a".into()))] {
            let rules = Rules { mode: Mode::Replay, on_lapse: OnLapse::Rerun };
            assert_eq!(decide(&snapshot(state), &newer, rules), Decision::Unreadable);
        }
    }

    #[test]
    fn reject_mode_refuses_what_runs_or_is_done_but_does_not_guess_about_a_lapse() {
        let reject = Rules { mode: Mode::Reject, ..Rules::default() };
        assert_eq!(judge(State::Running { lease_left: Duration::from_secs(1) }, reject), Decision::Duplicate);
        assert_eq!(judge(State::Completed(Answer("a".into())), reject), Decision::Duplicate);
        assert!(matches!(judge(lapsed_for(1), reject), Decision::Unknown { .. }));
    }

    #[test]
    fn an_answer_that_was_not_kept_is_a_duplicate() {
        assert_eq!(judge(State::Completed(Answer::none()), Rules::default()), Decision::Duplicate);
    }

    #[test]
    fn asking_waits_until_its_time() {
        let ask = Rules { on_lapse: OnLapse::Ask { after: Duration::from_secs(60) }, ..Rules::default() };
        assert_eq!(
            judge(lapsed_for(20), ask),
            Decision::Unknown { evidence: Answer::none(), ask_in: Some(Duration::from_secs(40)) }
        );
        assert_eq!(judge(lapsed_for(60), ask), Decision::TakeOver(Fence(7)));
    }
}
