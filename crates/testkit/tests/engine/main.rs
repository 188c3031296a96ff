//! The engine, with a ledger as witness: one room an idea.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

mod answers;
mod begin_faults;
mod doubt;
mod drain;
mod drops;
mod duplicates;
mod faulty_store;
mod input;
mod leases;
mod payloads;
mod repair;
mod runtimes;
mod settle_faults;
mod storm;
mod waiting;
mod world;
