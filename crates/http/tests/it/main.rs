//! Every row of the HTTP behaviour, over a real socket. One file an idea; the effect ledger is the judge.

mod bodies;
mod concurrency;
mod handlers;
mod identity;
mod keys;
mod languages;
mod lapses;
mod outcome;
mod replays;
mod setup;

mod support;
mod wire;
