//! Connections of HTTP/2 to an upstream that allows few streams: what there is when one is full.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Response};
use tokio::runtime::Runtime;

use crate::goaway::before;
use crate::limits::runtime;
use crate::program::post;
use crate::stores::key;

/// A service that allows so many streams at a time, and counts its connections. It never ends the answer to a GET, answers what
/// goes to /early before it was sent, and everything else after a while.
fn narrow(runtime: &Runtime, streams: u32, pause: Duration) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&connections);
    runtime.spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut builder = h2::server::Builder::new();
                let mut connection: h2::server::Connection<_, Bytes> =
                    builder.max_concurrent_streams(streams).handshake(socket).await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    tokio::spawn(async move {
                        let early = request.uri().path() == "/early";
                        if !early {
                            tokio::time::sleep(pause).await;
                        }
                        let answer = Response::builder().status(201).body(()).unwrap();
                        let ends = request.method() == Method::POST;
                        let stream = respond.send_response(answer, ends);
                        if early || !ends {
                            // Neither the request nor the answer is let go.
                            std::future::pending::<()>().await;
                        }
                        drop((stream, request));
                    });
                }
            });
        }
    });
    (address, connections)
}

#[test]
fn a_full_http2_connection_is_joined_by_another_one() {
    let runtime = runtime();
    let (address, connections) = narrow(&runtime, 2, Duration::ZERO);
    let gateway = before(address, &[&["--connect-timeout", "5s"], &["--response-timeout", "2s"]]);
    assert_eq!(gateway.post("/pay", &key("before"), "x").status, 201);
    let begun = Instant::now();
    let _endless: Vec<_> = (0..3)
        .map(|_| {
            let mut socket = std::net::TcpStream::connect(gateway.address).unwrap();
            socket.write_all(b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            let mut status = [0; 12];
            socket.read_exact(&mut status).unwrap();
            assert_eq!(&status, b"HTTP/1.1 201");
            socket
        })
        .collect();
    for _ in 0..10 {
        let answer = gateway.post("/pay", &key("beside"), "x");
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "nobody waits for a stream: {:?}", begun.elapsed());
    assert_eq!(connections.load(Ordering::SeqCst), 2, "three streams and one more need no third");
}

#[test]
fn a_burst_on_a_fresh_http2_connection_waits_in_no_queue_that_can_not_be_left() {
    let runtime = runtime();
    let (address, connections) = narrow(&runtime, 2, Duration::from_millis(400));
    let gateway = before(address, &[&["--connect-timeout", "10s"], &["--response-timeout", "1s"]]);
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let to = gateway.address;
            std::thread::spawn(move || post("/pay", &key("burst"), "x").send(to))
        })
        .collect();
    for call in calls {
        let answer = call.join().unwrap();
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    assert!(connections.load(Ordering::SeqCst) <= 20, "{connections:?}");
}

#[test]
fn a_stream_whose_request_is_still_being_sent_is_not_free() {
    let runtime = runtime();
    let (address, _) = narrow(&runtime, 1, Duration::ZERO);
    let gateway = before(address, &[&["--connect-timeout", "5s"], &["--response-timeout", "2s"]]);
    assert_eq!(gateway.post("/pay", &key("before"), "x").status, 201);
    // Answered before it was sent, and more of it may come at any time.
    let mut upload = std::net::TcpStream::connect(gateway.address).unwrap();
    upload.write_all(b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf").unwrap();
    upload.read_exact(&mut [0; 12]).unwrap();
    let answer = gateway.post("/pay", &key("after"), "x");
    assert_eq!(answer.status, 201, "{}", answer.text());
}
