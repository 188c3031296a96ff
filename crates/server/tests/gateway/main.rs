//! The gateway as callers, upstreams and operators see it: through the binary, over its sockets.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop there")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes wait in real time")]

mod admin;
mod asked;
mod bad_input;
mod client;
mod connections;
mod crowds;
mod cut;
mod damage;
mod disk_and_clock;
mod duplex;
mod faults;
mod framed;
mod frameworks;
mod goaway;
mod half_closed;
mod hostile;
mod http2;
mod jwt;
mod kept;
mod kills;
mod lax;
mod left;
mod limits;
mod operating;
mod operator;
mod packaging;
mod partitions;
mod program;
mod reload;
mod repair;
mod rows;
mod secrets;
mod security;
mod shared;
mod stalled;
mod store_urls;
mod stores;
mod tokens;
mod traffic;
mod trailed;
mod unread_log;
mod unwritten;
mod upstream;
