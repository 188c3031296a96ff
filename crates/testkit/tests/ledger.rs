//! The ledger keeps every effect, and the history checker finds what is wrong.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

use std::thread;

use onlyonce_core::StateKind;
use onlyonce_testkit::{Effect, History, Ledger};

/// A file of this test, gone with it.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("onlyonce-ledger-{name}-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn effects_of_many_threads_are_all_there() {
    let scratch = Scratch::new("threads");
    for ledger in [Ledger::in_memory(), Ledger::in_file(&scratch.0).unwrap()] {
        thread::scope(|scope| {
            for writer in 0..8 {
                let ledger = ledger.clone();
                scope.spawn(move || {
                    (0..200).for_each(|n| ledger.record(&format!("{writer}-{n}"), "it").unwrap())
                });
            }
        });
        let mut keys: Vec<_> = ledger.effects().unwrap().into_iter().map(|effect| effect.key).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 1600);
        assert_eq!(ledger.count("3-199").unwrap(), 1);
    }
}

#[test]
fn a_file_ledger_is_read_by_who_opens_it_later() {
    let scratch = Scratch::new("later");
    let odd = "a key\twith\nodd \\ text";
    Ledger::in_file(&scratch.0).unwrap().record(odd, "first").unwrap();
    let later = Ledger::in_file(&scratch.0).unwrap();
    later.record("k", "second").unwrap();
    let effect = |key: &str, by: &str| Effect { key: key.into(), by: by.into() };
    assert_eq!(later.effects().unwrap(), [effect(odd, "first"), effect("k", "second")]);
}

fn wrong(ledger: &Ledger, history: &History, share: f64) -> String {
    history.check(ledger, share).unwrap().unwrap_err().to_string()
}

#[test]
fn a_history_in_order_passes_with_its_figures() {
    let (ledger, history) = (Ledger::in_memory(), History::new());
    ledger.record("a", "receipt").unwrap();
    history.answered("a", "receipt");
    history.answered("a", "receipt");
    history.refused("b", "unavailable");
    history.ended("a", Some(StateKind::Completed));
    history.ended("b", None);
    let summary = history.check(&ledger, 0.6).unwrap().unwrap();
    assert_eq!((summary.keys, summary.effects, summary.calls, summary.answered), (2, 1, 3, 2));
}

#[test]
fn a_second_effect_is_found_and_named() {
    let (ledger, history) = (Ledger::in_memory(), History::new());
    for fence in 1..=2 {
        ledger.record("a", &format!("fence {fence}")).unwrap();
        ledger.record(&fence.to_string(), "fine").unwrap();
        history.answered(&fence.to_string(), "fine");
    }
    history.answered("a", "fence 2");
    let report = wrong(&ledger, &history, 0.0);
    assert!(report.contains("a: 2 effects; history: effect by fence 1, effect by fence 2"), "{report}");
    assert!(report.starts_with("1 violations"), "{report}");
}

#[test]
fn two_answers_are_found() {
    let (ledger, history) = (Ledger::in_memory(), History::new());
    ledger.record("a", "receipt").unwrap();
    history.answered("a", "receipt");
    history.answered("a", "receipt ");
    assert!(wrong(&ledger, &history, 0.0).contains("2 different answers"));
}

#[test]
fn an_answer_of_another_effect_is_found() {
    let (ledger, history) = (Ledger::in_memory(), History::new());
    for (key, receipt) in [("a", "receipt 1"), ("b", "receipt 2")] {
        ledger.record(key, receipt).unwrap();
        history.answered("a", "receipt 1");
    }
    history.answered("b", "receipt 1");
    let report = wrong(&ledger, &history, 0.0);
    assert!(report.contains("b: an answer that is not that of its effect"), "{report}");
    assert!(report.starts_with("1 violations"), "{report}");

    let (ledger, history) = (Ledger::in_memory(), History::new());
    ledger.record("a", "receipt 1").unwrap();
    history.unstored("a", "receipt 1, cut o");
    assert!(wrong(&ledger, &history, 0.0).contains("a: an answer that is not that of its effect"));
}

#[test]
fn an_answer_from_nowhere_is_found() {
    let (ledger, history) = (Ledger::in_memory(), History::new());
    history.answered("a", "receipt");
    assert!(wrong(&ledger, &history, 0.0).contains("a: an answer without an effect"));
}

#[test]
fn a_key_left_in_progress_is_found() {
    let (ledger, history) = (Ledger::in_memory(), History::new());
    ledger.record("a", "receipt").unwrap();
    history.answered("a", "receipt");
    history.ended("a", Some(StateKind::Running));
    assert!(wrong(&ledger, &history, 0.0).contains("a: still in progress"));
}

#[test]
fn a_stored_answer_whose_record_did_not_complete_is_found() {
    for state in [Some(StateKind::Lapsed), Some(StateKind::Released), None] {
        let (ledger, history) = (Ledger::in_memory(), History::new());
        ledger.record("a", "receipt").unwrap();
        history.answered("a", "receipt");
        history.ended("a", state);
        assert!(wrong(&ledger, &history, 0.0).contains("a: a stored answer was lost"), "{state:?}");
    }
}

#[test]
fn an_answer_that_was_not_stored_may_end_as_unknown_but_not_be_repeated() {
    let (ledger, history) = (Ledger::in_memory(), History::new());
    ledger.record("a", "receipt").unwrap();
    history.unstored("a", "receipt");
    history.ended("a", Some(StateKind::Lapsed));
    assert!(history.check(&ledger, 0.0).unwrap().is_ok());
    history.ended("a", Some(StateKind::Released));
    assert!(wrong(&ledger, &history, 0.0).contains("a: a retry would run again what had an effect"));
}

#[test]
fn a_key_whose_end_nobody_looked_at_is_found() {
    let (ledger, history) = (Ledger::in_memory(), History::new());
    for key in ["a", "b"] {
        ledger.record(key, "receipt").unwrap();
        history.answered(key, "receipt");
    }
    history.ended("a", Some(StateKind::Completed));
    assert!(wrong(&ledger, &history, 0.0).contains("b: nobody looked how it ended"));
}

#[test]
fn too_few_answers_show_nothing() {
    let (ledger, history) = (Ledger::in_memory(), History::new());
    assert!(wrong(&ledger, &history, 0.0).contains("0 of 0 calls"));
    ledger.record("a", "receipt").unwrap();
    history.answered("a", "receipt");
    history.refused("b", "unavailable");
    assert!(history.check(&ledger, 0.5).unwrap().is_ok());
    assert!(wrong(&ledger, &history, 0.51).contains("only 1 of 2 calls were answered"));
}
