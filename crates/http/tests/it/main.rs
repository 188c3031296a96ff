//! Every row of the HTTP behaviour, over a real socket. One file an idea; the effect ledger is the judge.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop there")]

mod bodies;
mod chains;
mod concurrency;
mod cut;
mod handlers;
mod identity;
mod keys;
mod languages;
mod lapses;
mod memory;
mod outcome;
mod replays;
mod secrets;
mod sequences;
mod setup;
mod spelling;
mod stores;
mod support;
mod tokens;
mod wire;
