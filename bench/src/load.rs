//! A client that is much cheaper than what it measures: prepared bytes on keep-alive connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

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

/// Sends requests for a while over 64 connections; returns how many were answered a second.
pub(crate) async fn requests_per_second(address: SocketAddr, body: &str, keys: Keys, span: Duration) -> f64 {
    static NEXT_KEY: AtomicU64 = AtomicU64::new(0);
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let (stop, body) = (Arc::clone(&stop), body.to_owned());
            tokio::spawn(async move {
                let mut socket = TcpStream::connect(address).await.expect("the server listens");
                socket.set_nodelay(true).expect("a TCP socket");
                let mut answered = 0_u64;
                let mut buffer = vec![0; 4096];
                while !stop.load(Ordering::Relaxed) {
                    let n = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
                    let key = match keys {
                        Keys::Fresh => format!("fresh-{n:020}"),
                        Keys::Repeated => format!("again-{:020}", n % 1000),
                    };
                    let request = format!(
                        "POST /pay HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\nidempotency-key: {key}\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    socket.write_all(request.as_bytes()).await.expect("the server reads");
                    read_answer(&mut socket, &mut buffer).await;
                    answered += 1;
                }
                answered
            })
        })
        .collect();
    tokio::time::sleep(span).await;
    stop.store(true, Ordering::Relaxed);
    let mut answered = 0;
    for client in clients {
        answered += client.await.expect("no client fails");
    }
    answered as f64 / span.as_secs_f64()
}

async fn read_answer(socket: &mut TcpStream, buffer: &mut [u8]) {
    let mut filled = 0;
    loop {
        let read = socket.read(&mut buffer[filled..]).await.expect("the server answers");
        assert!(read > 0, "the server closed the connection");
        filled += read;
        let text = &buffer[..filled];
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
