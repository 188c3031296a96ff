//! The protocol, exhaustively: every order in which a few callers, a network that loses replies, crashes and the clock can meet at one
//! record. The record's life and the judgement are the engine's own (`machine`, `policy`); what is modelled is all that happens between
//! them. A model that is broken in one place must be caught, or it would show nothing.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod caller;
mod world;

use stateright::{Checker as _, HasDiscoveries, Model as _};

use world::{Mistake, Protocol};

/// What must never be seen.
const LAWS: [&str; 3] =
    ["at most one effect", "every answer is that of the effect", "an answer that was given stays"];

#[test]
fn no_order_of_events_gives_two_effects_or_two_answers() {
    let checker = Protocol::right().checker().threads(2).spawn_bfs().join();
    // Also what must be seen, else nothing was shown: a replay, "unknown", and a second run after a release.
    checker.assert_properties();
    assert!(checker.unique_state_count() > 10_000, "only {} states", checker.unique_state_count());
    println!("{} states", checker.unique_state_count());
}

#[test]
fn a_protocol_that_is_broken_in_one_place_is_caught() {
    for mistake in Mistake::ALL {
        let checker = Protocol::with(mistake).checker().threads(2);
        let found = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let broken = LAWS.iter().find(|law| found.discovery(law).is_some());
        println!("{mistake:?} breaks {broken:?}");
        assert!(broken.is_some(), "{mistake:?} was not noticed");
    }
}
