//! The gateway as callers, upstreams and operators see it: through the binary, over its sockets.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop there")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes wait in real time")]

mod admin;
mod bad_input;
mod client;
mod damage;
mod faults;
mod frameworks;
mod http2;
mod jwt;
mod kills;
mod packaging;
mod partitions;
mod program;
mod reload;
mod rows;
mod security;
mod stores;
mod tokens;
mod traffic;
mod upstream;
