//! Ports for servers that a test starts, kills, and starts again.

use std::net::TcpListener;
use std::ops::Range;

/// Below what systems give to clients (32,768 and up on Linux): while a killed server is down nobody takes its place by
/// connecting to somebody else, and nobody who tries to reach it is connected to himself.
const SERVERS: Range<u16> = 10_000..20_000;

/// How far the second port of [`free_pair`] is above the first.
const APART: u16 = 10_000;

/// A port of `127.0.0.1` that nobody listens on.
///
/// It is drawn at random, so that tests that ask at the same time are unlikely to get the same.
///
/// ```
/// let port = onlyonce_testkit::free_port();
/// std::net::TcpListener::bind(("127.0.0.1", port))?;
/// # Ok::<_, std::io::Error>(())
/// ```
pub fn free_port() -> u16 {
    drawn(is_free)
}

/// As [`free_port`], where the port that is 10,000 above is free too: nodes of a Redis Cluster talk to each other there.
pub fn free_pair() -> u16 {
    drawn(|port| is_free(port) && is_free(port + APART))
}

fn drawn(fits: impl Fn(u16) -> bool) -> u16 {
    let drawn = std::iter::repeat_with(|| rand::random_range(SERVERS));
    drawn.take(10_000).find(|port| fits(*port)).expect("no port of 127.0.0.1 is free")
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_not_free() {
        let taken = free_pair();
        let _second = TcpListener::bind(("127.0.0.1", taken + APART)).unwrap();
        assert!(is_free(taken) && !is_free(taken + APART));
        assert!(SERVERS.contains(&taken));
    }
}
