//! A client that is much cheaper than what it measures: prepared bytes on keep-alive connections.
#![allow(clippy::disallowed_methods, reason = "measuring is about real time")]

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CONNECTIONS: usize = 64;

/// Which keys the requests carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Every request is new.
    Fresh,
    /// A thousand keys, again and again.
    Repeated,
}

/// What came of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    /// Answers a second.
    pub(crate) rate: f64,
    /// The time within which 99 of 100 were answered, in microseconds.
    pub(crate) p99: f64,
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}/s (p99 {:.0} µs)", self.rate, self.p99)
    }
}

/// Sends requests for a while over 64 connections, each as soon as the one before it is answered.
pub(crate) async fn pace(address: SocketAddr, body: &str, keys: Keys, span: Duration) -> Pace {
    static NEXT_KEY: AtomicU64 = AtomicU64::new(0);
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let (stop, body) = (Arc::clone(&stop), body.to_owned());
            tokio::spawn(async move {
                let mut connection = Connection::open(address).await;
                let mut took = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let n = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
                    let key = match keys {
                        Keys::Fresh => format!("fresh-{n:020}"),
                        Keys::Repeated => format!("again-{:020}", n % 1000),
                    };
                    let sent = Instant::now();
                    connection.call(&key, &body).await;
                    took.push(sent.elapsed());
                }
                took
            })
        })
        .collect();
    tokio::time::sleep(span).await;
    stop.store(true, Ordering::Relaxed);
    let mut took = Vec::new();
    for client in clients {
        took.extend(client.await.expect("no client fails"));
    }
    took.sort_unstable();
    let p99 = took.get(took.len() * 99 / 100).copied().unwrap_or_default();
    Pace { rate: took.len() as f64 / span.as_secs_f64(), p99: p99.as_secs_f64() * 1e6 }
}

/// A connection that is kept, with one call at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).await.expect("the server listens");
        socket.set_nodelay(true).expect("a TCP socket");
        Self { socket, buffer: vec![0; 4096] }
    }

    /// Sends a call, and reads its answer to the end.
    ///
    /// # Panics
    /// If the answer is not a 200.
    pub(crate) async fn call(&mut self, key: &str, body: &str) {
        let request = format!(
            "POST /pay HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\nidempotency-key: {key}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.socket.write_all(request.as_bytes()).await.expect("the server reads");
        let mut filled = 0;
        loop {
            let read = self.socket.read(&mut self.buffer[filled..]).await.expect("the server answers");
            assert!(read > 0, "the server closed the connection");
            filled += read;
            let text = &self.buffer[..filled];
            let Some(end) = memmem::find(text, b"\r\n\r\n") else { continue };
            assert!(text.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(text));
            let length = memmem::find(text, b"-Length: ").or_else(|| memmem::find(text, b"-length: "));
            let length = length.expect("answers have a length") + 9;
            let digits = text[length..].iter().take_while(|byte| byte.is_ascii_digit());
            let length = digits.fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
            if filled >= end + 4 + length {
                return;
            }
        }
    }
}
