//! What locks promise to who holds them, on locks in memory and a clock that is moved by hand.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod closing;
mod drops;
mod holding;
mod input;
mod meter;
mod owners;
mod waiting;
mod world;
