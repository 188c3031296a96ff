//! Runnable examples: `cargo run -p onlyonce-examples --bin quickstart`. Each is tested as a user would try it.
//!
//! The scenarios of the guide are in `scenario/`, written once and compiled for each database. Their programs run on SQLite
//! without a server (`cargo run -p onlyonce-examples --bin stock`), their tests also on MySQL and PostgreSQL.

#![allow(clippy::duplicate_mod, reason = "the same scenarios for another database")]

pub mod on_mysql;
pub mod on_postgres;
pub mod on_sqlite;
